"""The one place where a module of ours is loaded late.

Lives here: the way to `schema`. It brings pydantic's schema machinery, a third of the cost of a start, which a
program needs with its first tool and not before.
"""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType


@lru_cache(maxsize=1)
def machinery() -> ModuleType:
    """Return the module that compiles types."""
    from toolmason._core import schema  # noqa: PLC0415 - see above

    return schema
