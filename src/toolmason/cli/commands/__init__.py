"""One module per subcommand; each holds `command`."""
