"""Compare lists of tools: schema differences, the lock file."""
