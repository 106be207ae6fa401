"""Lists of a server: fetch, cache and pin them, and view them for one identity."""
