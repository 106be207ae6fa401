"""Run tools on other machines, and runs that survive the loss of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolmason._lazy import lazy_names

if TYPE_CHECKING:
    from toolmason._core.values.remote_executor import RemoteCall, RemoteExecutor, StoredValue, ToolResources
    from toolmason.scale.ray_executor import RayExecutor, RayObject
    from toolmason.scale.temporal_runtime import TemporalRuntime
    from toolmason.scale.temporal_worker import TemporalWorker

__all__ = [
    "RayExecutor",
    "RayObject",
    "RemoteCall",
    "RemoteExecutor",
    "StoredValue",
    "TemporalRuntime",
    "TemporalWorker",
    "ToolResources",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "toolmason._core.values.remote_executor": ("RemoteCall", "RemoteExecutor", "StoredValue", "ToolResources"),
        "toolmason.scale.ray_executor": ("RayExecutor", "RayObject"),
        "toolmason.scale.temporal_runtime": ("TemporalRuntime",),
        "toolmason.scale.temporal_worker": ("TemporalWorker",),
    },
)
