"""Frozen data: content, calls, results, messages, policy and definitions. Imports only `toolmason.errors`."""
