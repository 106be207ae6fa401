"""Load tools from packages, plugins, manifests and resolvers."""
