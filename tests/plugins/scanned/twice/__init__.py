"""A package with two tools of one name."""
