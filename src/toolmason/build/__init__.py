"""Build-time tasks: manifests, comparison of definitions, checks."""
