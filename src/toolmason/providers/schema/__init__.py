"""Rewrite JSON Schema for each provider, and report what is lost."""
