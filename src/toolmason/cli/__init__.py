"""The `toolmason` command: entry point, targets, output and subcommands."""
