"""What is done before a program runs: checks, manifests, locks, differences between lists of tools."""
