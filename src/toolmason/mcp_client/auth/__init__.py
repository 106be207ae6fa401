"""Sign in to MCP servers: tokens in a file, people in a browser, and services with credentials of their own."""
