"""APIs that may still change: the mark, and how to allow their use.

Public names beside the root, under the same rules.
"""

from toolmason._core.gating import allow_experimental, experimental, experimental_is_allowed

__all__ = ["allow_experimental", "experimental", "experimental_is_allowed"]
