"""One module per wire format: requests, replies and streams as plain dicts."""
