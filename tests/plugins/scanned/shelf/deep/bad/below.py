"""Not reached."""
