"""Runs that survive a crash: effects, journal, and the SQLite file that holds it."""
