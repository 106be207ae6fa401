"""The ASGI application: guard, identity, quotas, replay, and the fast path for plain calls."""
