"""Build a package's manifest and detect whether it is stale."""
