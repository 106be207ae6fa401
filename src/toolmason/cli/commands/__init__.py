"""Subcommands of `toolmason`. Each module defines `command`."""
