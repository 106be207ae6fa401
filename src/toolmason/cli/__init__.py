"""The command line: the entry point, targets, output."""
