"""Fails while it is imported."""

raise RuntimeError("the disk is on fire")
