"""Interface between a toolbox and its servers. No wire format, no MCP SDK."""
