"""Commands that list, call and serve tools."""
