"""Models behind an HTTP API: endpoints, retries, transport and streams."""
