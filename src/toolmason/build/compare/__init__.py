"""Compare lists of tools: schema differences and the lock file."""
