"""The low level, for dynamic tools, computed schemas and tools read from files.

The high level is built on these. They are public and change under the same rules as the root names.
"""

from toolwright._core.approvals import DryRun
from toolwright._core.approve import ApprovalRequest, Decision
from toolwright._core.augment import AugmentedCall
from toolwright._core.catalog import Resolver, ToolSource
from toolwright._core.declare import ParamSpec
from toolwright._core.known import WebSearchSettings
from toolwright._core.policy import INHERIT, Settings
from toolwright._core.progress import ProgressReport
from toolwright._core.prompts import Prompt
from toolwright._core.servers import ServerSettings
from toolwright._core.tool import FunctionTool, SchemaTool

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
