"""Run one call, from arguments to result: bind, check limits and approval, run, render, record."""
