"""Packages, plugins, manifests and resolvers as sources of tools."""
