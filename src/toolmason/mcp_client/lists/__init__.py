"""The lists of a server: fetch, cache, pin, and view them for one identity."""
