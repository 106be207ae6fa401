"""JSON Schema rewritten for each provider, with a report of what was lost."""
