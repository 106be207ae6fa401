"""`toolmason check`: rules, findings, reports, and the pytest plugin."""
