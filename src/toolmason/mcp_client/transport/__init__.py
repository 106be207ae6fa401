"""Bytes from and to a server: stdio, HTTP, framing, sanitizing, SSRF checks."""
