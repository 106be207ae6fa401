"""Wire formats of requests, replies and streams, as plain dicts. One module each."""
