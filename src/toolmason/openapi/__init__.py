"""The operations of an OpenAPI document as tools: read the document, write the schemas, send the requests."""

from typing import TYPE_CHECKING

from toolmason._lazy import lazy_names

if TYPE_CHECKING:
    from toolmason.openapi.api_tool import ApiError
    from toolmason.openapi.open_api import OpenApi, SkippedOperation
    from toolmason.openapi.operation import Operation

__all__ = ["ApiError", "OpenApi", "Operation", "SkippedOperation"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "toolmason.openapi.api_tool": ("ApiError",),
        "toolmason.openapi.open_api": ("OpenApi", "SkippedOperation"),
        "toolmason.openapi.operation": ("Operation",),
    },
)
