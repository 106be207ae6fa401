"""Rules that read source files without importing them."""
