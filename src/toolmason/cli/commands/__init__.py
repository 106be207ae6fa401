"""The subcommands, one module each; a module defines `command`."""
