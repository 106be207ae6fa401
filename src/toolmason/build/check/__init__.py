"""Rules, findings, reports and the pytest plugin of `toolmason check`."""
