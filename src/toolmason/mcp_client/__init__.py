"""MCP servers as sources of tools: connections, sessions, pools, OAuth."""
