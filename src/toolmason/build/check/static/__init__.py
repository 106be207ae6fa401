"""Rules that read the source without importing it."""
