"""A plugin that is half broken."""
