"""MCP servers as sources of tools: connections, sessions, pools and OAuth."""
