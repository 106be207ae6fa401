"""Files, environment and code, merged into one `Config`. Knows keys and layers, not tools."""
