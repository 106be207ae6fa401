"""Ready-made resolvers: `Toolbox("name", resolvers=[...])` looks a name up in them, in the order you give.

Public names beside the root, under the same rules. Your own is any object with `resolve(name) -> Tool | None`.
"""

from toolmason._core.catalog import Resolver
from toolmason._core.resolvers import EntryPointResolver, ImportResolver, StaticResolver

__all__ = ["EntryPointResolver", "ImportResolver", "Resolver", "StaticResolver"]
