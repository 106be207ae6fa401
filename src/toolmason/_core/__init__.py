"""The path of a call: no SDK, no network. Modules are listed in dependency order in ARCHITECTURE.md."""
