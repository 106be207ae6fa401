"""The `toolmason` command: one file for each subcommand, loaded when it is used."""
