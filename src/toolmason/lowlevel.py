"""The low level, for dynamic tools, computed schemas and tools read from files.

The high level is built on these. They are public and change under the same rules as the root names.
"""

from toolmason._core.approvals import DryRun
from toolmason._core.approve import ApprovalRequest, Decision
from toolmason._core.augment import AugmentedCall
from toolmason._core.catalog import Resolver, ToolSource
from toolmason._core.declare import ParamSpec
from toolmason._core.known import WebSearchSettings
from toolmason._core.policy import INHERIT, Settings
from toolmason._core.progress import ProgressReport
from toolmason._core.prompts import Prompt
from toolmason._core.servers import ServerSettings
from toolmason._core.tool import FunctionTool, SchemaTool

__all__ = [
    "INHERIT",
    "ApprovalRequest",
    "AugmentedCall",
    "Decision",
    "DryRun",
    "FunctionTool",
    "ParamSpec",
    "ProgressReport",
    "Prompt",
    "Resolver",
    "SchemaTool",
    "ServerSettings",
    "Settings",
    "ToolSource",
    "WebSearchSettings",
]
