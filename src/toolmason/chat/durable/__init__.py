"""Runs that survive a crash: effects, the journal, and its SQLite file."""
