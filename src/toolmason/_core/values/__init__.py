"""Frozen data: content, calls, results, messages, policy and definitions. Imports no other package of the core."""
