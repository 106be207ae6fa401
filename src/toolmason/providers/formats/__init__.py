"""Wire formats of the providers, one module each: requests, replies and streams as plain dicts."""
