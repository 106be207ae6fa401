"""Work done before a program runs: manifests, comparison of definitions, checks."""
