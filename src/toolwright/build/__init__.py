"""What is done before a program runs: manifests, locks, differences between lists of tools."""
