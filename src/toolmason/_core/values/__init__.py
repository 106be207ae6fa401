"""Frozen data: content, calls, results, messages, policy, definitions. Imports nothing of the package except errors."""
