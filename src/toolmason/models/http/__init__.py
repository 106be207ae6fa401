"""Models behind an HTTP API: endpoints, retries, transport, streams."""
