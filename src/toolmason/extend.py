"""For code that builds on Toolmason: tools without a decorator, sources, resolvers, converters, engine settings."""

from typing import TYPE_CHECKING

from toolmason._lazy import lazy_names

if TYPE_CHECKING:
    from toolmason import converters
    from toolmason._core.call.approval import ApprovalRequest, Decision
    from toolmason._core.catalog.augmented import AugmentedCall
    from toolmason._core.catalog.catalog import Resolver, ToolSource
    from toolmason._core.catalog.prompts import Prompt
    from toolmason._core.config.keys import WebSearchSettings
    from toolmason._core.define.decorators import ParamSpec
    from toolmason._core.define.experimental import allow_experimental, experimental, experimental_is_allowed
    from toolmason._core.define.tool import FunctionTool, SchemaTool, Tool
    from toolmason._core.load.resolvers import EntryPointResolver, ImportResolver, StaticResolver
    from toolmason._core.run.progress import ProgressReport
    from toolmason._core.toolbox.approvals import DryRun
    from toolmason._core.values.policy import INHERIT, EngineSettings
    from toolmason._core.values.remembered_decisions import RememberedDecision
    from toolmason.build.manifest.setuptools import BuildPy as BuildPy  # noqa: PLC0414 - public, but not listed

# Without `BuildPy`, which needs setuptools: `import *` and `help()` load every name.
__all__ = [
    "INHERIT",
    "ApprovalRequest",
    "AugmentedCall",
    "Decision",
    "DryRun",
    "EngineSettings",
    "EntryPointResolver",
    "FunctionTool",
    "ImportResolver",
    "ParamSpec",
    "ProgressReport",
    "Prompt",
    "RememberedDecision",
    "Resolver",
    "SchemaTool",
    "StaticResolver",
    "Tool",
    "ToolSource",
    "WebSearchSettings",
    "allow_experimental",
    "converters",
    "experimental",
    "experimental_is_allowed",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "toolmason._core.call.approval": ("ApprovalRequest", "Decision"),
        "toolmason._core.catalog.augmented": ("AugmentedCall",),
        "toolmason._core.catalog.catalog": ("Resolver", "ToolSource"),
        "toolmason._core.catalog.prompts": ("Prompt",),
        "toolmason._core.config.keys": ("WebSearchSettings",),
        "toolmason._core.define.decorators": ("ParamSpec",),
        "toolmason._core.define.experimental": ("allow_experimental", "experimental", "experimental_is_allowed"),
        "toolmason._core.define.tool": ("FunctionTool", "SchemaTool", "Tool"),
        "toolmason._core.load.resolvers": ("EntryPointResolver", "ImportResolver", "StaticResolver"),
        "toolmason._core.run.progress": ("ProgressReport",),
        "toolmason._core.toolbox.approvals": ("DryRun",),
        "toolmason._core.values.policy": ("INHERIT", "EngineSettings"),
        "toolmason._core.values.remembered_decisions": ("RememberedDecision",),
        "toolmason.build.manifest.setuptools": ("BuildPy",),
        "toolmason.converters": ("converters",),
    },
    unlisted=("BuildPy",),
)
