"""Check HTTP requests, whatever they are for: Host, Origin, token, size, time."""
