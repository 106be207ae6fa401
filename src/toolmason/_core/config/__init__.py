"""Merge configuration from files, the environment and code into one `Config`. Knows keys and layers, not tools."""
