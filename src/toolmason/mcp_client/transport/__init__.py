"""Connections to a server: stdio, HTTP, framing, sanitizing and SSRF checks."""
