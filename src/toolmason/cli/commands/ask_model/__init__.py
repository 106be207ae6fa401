"""Commands that run tools with a model."""
