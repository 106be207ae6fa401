"""Write the manifest of a package, and find out if it is stale."""
