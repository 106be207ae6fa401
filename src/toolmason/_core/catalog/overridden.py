"""Give a tool other options, another name or description, and other arguments, as `Toolbox.override`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final

from typing_extensions import override

from toolmason._core.catalog.argument_changes import ArgumentChanges
from toolmason._core.define.context import ToolContext
from toolmason._core.define.decorators import make_options
from toolmason._core.define.inputs import Inputs
from toolmason._core.define.signature import check_lock
from toolmason._core.define.tool import CompiledTool, LazyTool, RenamedTool, Tool, compile_tool
from toolmason._core.run.execute import call_user_function, call_with_arguments
from toolmason._core.values.definition import ApprovalOption, ToolDefinition, ToolOptions
from toolmason._core.values.policy import EngineSettings
from toolmason._text import suggest
from toolmason._wire import parse_json
from toolmason.errors import DefinitionError, InvalidArguments

_log = logging.getLogger("toolmason")
_DEFINITION_KEYS: Final = ("name", "title", "description")
_FIXED_OPTIONS: Final = frozenset(
    {"converter", "external", "extra", "overrides_builtin", "runs_on", "strict_types", "substitute_result"}
)
"""Options that belong to the code of a tool."""
_SMALLER_WINS: Final = frozenset({"timeout", "max_calls", "max_result_bytes"})
_LIMITS: Final = frozenset({"max_calls", "max_concurrency", "max_result_bytes", "rate", "lock"})
"""Options for which None means no limit, which removes none of the original tool."""
_MAX_KEPT: Final = 64
"""Number of overridden tools that are kept. A server's tool is a new one after each change of its list."""


class Override:
    """Changes of the tool with one name, in a view of a toolbox."""

    def __init__(self, name: str, keywords: Mapping[str, Any]) -> None:
        self.tool_name = name
        for key in _DEFINITION_KEYS:
            if (text := keywords.get(key)) is not None and not (isinstance(text, str) and text.strip()):
                raise DefinitionError(
                    f"override({name!r}): {key}={text!r} must be text, and not empty. Omit it to keep the original."
                )
        self.definition_changes = {key: keywords[key] for key in _DEFINITION_KEYS if keywords.get(key) is not None}
        options = {key: value for key, value in keywords.items() if key not in (*_DEFINITION_KEYS, "arguments")}
        if fixed := sorted(_FIXED_OPTIONS & options.keys()):
            raise DefinitionError(
                f"override({name!r}): {fixed[0]!r} belongs to the code of the tool. Set it in the definition."
            )
        options = {key: value for key, value in options.items() if value is not None or key not in _LIMITS}
        parsed = make_options(options)
        self.options = {key: getattr(parsed, key) for key in options}
        self.arguments = ArgumentChanges(name, keywords.get("arguments") or {})
        self.is_used = False
        """True once the view has had a tool of this name, or its absence is logged."""
        self._convert = lru_cache(_MAX_KEPT)(self._apply_or_withhold)

    @property
    def new_name(self) -> str:
        """Name of the tool in the view."""
        return str(self.definition_changes.get("name", self.tool_name))

    def report_unused(self, names: Iterable[str]) -> None:
        """Log that no tool has this name, once."""
        if not self.is_used:
            self.is_used = True
            hint = suggest(self.tool_name, names)
            _log.warning(
                "override(%r): neither the toolbox nor its servers have a tool of this name.%s", self.tool_name, hint
            )

    def transform(self, tool: Tool) -> Tool:
        """Return the overridden tool, or another tool unchanged. A tool that no longer fits is withheld."""
        return self._convert(tool) if tool.name == self.tool_name else tool

    def _apply_or_withhold(self, tool: Tool) -> Tool:
        try:
            return self.apply(tool)
        except Exception as error:  # noqa: BLE001 - a schema that the server wrote may fail in any way
            reason = str(error) if isinstance(error, DefinitionError) else f"override({self.tool_name!r}): {error!r}."
            # The original must not run in its place: it lacks the hidden values.
            _log.warning("%s The tool is withheld.", reason)
            return UnfitTool(tool, self.new_name, reason)

    def apply(self, tool: Tool) -> Tool:
        """Return the overridden tool.

        Raises:
            DefinitionError: the changes do not fit the tool.
        """
        self.is_used = True
        self.arguments.check(tool.definition.input_schema)
        definition, options = self.change_definition(tool.definition), self.change_options(tool.options)
        if isinstance(tool, LazyTool):
            self.arguments.check_types(tool.definition.input_schema)
            return tool.with_definition(definition, self.apply, options=options)
        if self.arguments:
            self._check_arguments(compile_tool(tool))
        if "lock" in self.options:
            schemas = (tool.definition.input_schema, definition.input_schema)
            parameters = compile_tool(tool).parameters
            check_lock(f"override({self.tool_name!r})", self.options["lock"], parameters, *schemas)
        is_trusted = self.options.get("read_only") is True and not tool.policies
        rule = self.options.get("approval", False)
        return OverriddenTool(tool, definition, options, self.arguments, own_approval=rule, is_trusted=is_trusted)

    def _check_arguments(self, compiled: CompiledTool) -> None:
        if compiled.on_arguments is not None and self.arguments.injectors:
            raise DefinitionError(
                f"override({self.tool_name!r}): an augmented tool takes no value from the context. Override it first."
            )
        # Not the schema of the definition: a server's schema that is too complex to use is not among the inputs.
        self.arguments.check_types(compiled.inputs.schema)
        self.arguments.check_values(compiled.inputs)

    def change_definition(self, definition: ToolDefinition) -> ToolDefinition:
        """Return the definition of the tool in the view."""
        changes = dict(self.definition_changes)
        if self.arguments:
            changes["input_schema"] = self.arguments.change_schema(definition.input_schema)
        return replace(definition, **changes) if changes else definition

    def change_options(self, options: ToolOptions) -> ToolOptions:
        """Return the options of the tool in the view. Limits and approvals of the original tool stay.

        Raises:
            DefinitionError: the options contradict those of the tool.
        """
        changes: dict[str, Any] = dict(self.options)
        self._check_options(changes, options)
        for key in _SMALLER_WINS & changes.keys():
            limits = [limit for limit in (changes[key], getattr(options, key)) if isinstance(limit, int | float)]
            changes[key] = min(limits) if limits else changes[key]
        for key, other in (("read_only", "destructive"), ("destructive", "read_only")):
            if changes.get(key):
                changes.setdefault(other, None)
        if options.on_error == "redact" and changes.get("on_error") == "message":
            changes["on_error"] = "redact"
        for key, decides in (("approval", True), ("enabled", False)):
            if key in changes:
                changes[key] = _combine(getattr(options, key), changes[key], decides=decides)
        if "scopes" in changes:
            changes["scopes"] |= options.scopes
        if "meta" in changes:
            changes["meta"] = {**options.meta, **changes["meta"]}
        changed = options.with_(**changes)
        return changed.with_(**self._adapt_functions(changed)) if self.arguments else changed

    def _adapt_functions(self, options: ToolOptions) -> dict[str, Callable[..., Any]]:
        """Return the functions that get the arguments of a call. They see those that the tool itself gets."""
        functions = {key: getattr(options, key) for key in ("approval", "preview", "reconcile")}
        return {key: _adapt(given, self.arguments) for key, given in functions.items() if callable(given)}

    def _check_options(self, changes: Mapping[str, Any], options: ToolOptions) -> None:
        if changes.get("approval") is False and options.approval is not False:
            raise DefinitionError(
                f"override({self.tool_name!r}, approval=False): the tool itself asks for approval, and an override "
                "does not remove that."
            )
        if "lock" in changes and options.lock not in (None, changes["lock"]):
            raise DefinitionError(f"override({self.tool_name!r}): the tool already locks on {options.lock!r}.")


def _adapt(function: Callable[..., Any], changes: ArgumentChanges) -> Callable[..., Any]:
    """Return a function that passes the arguments to another as the tool itself gets them."""

    async def call(arguments: Mapping[str, Any], context: ToolContext[Any]) -> Any:
        original = changes.complete(arguments, context)
        return await call_with_arguments(function, original, context, EngineSettings())

    return call


def _combine(first: Any, second: Any, *, decides: bool) -> bool | Callable[..., Any]:
    """Return a rule that asks two rules. The answer `decides` of either is the answer."""
    if decides in (first, second):
        return decides
    rules = [rule for rule in (first, second) if not isinstance(rule, bool)]
    if len(rules) < 2:  # noqa: PLR2004 - there is nothing to combine
        return rules[0] if rules else not decides

    async def ask(*arguments: Any) -> bool:
        for rule in rules:
            if bool(await call_user_function(rule, *arguments, settings=EngineSettings())) is decides:
                return decides
        return not decides

    return ask


class OverriddenTool(RenamedTool):
    """A tool with another definition, other options and other arguments."""

    def __init__(
        self,
        tool: Tool,
        definition: ToolDefinition,
        options: ToolOptions,
        changes: ArgumentChanges,
        *,
        own_approval: ApprovalOption = False,
        is_trusted: bool = False,
    ) -> None:
        super().__init__(tool, tool.name)
        self.definition, self.options = definition, options
        self.change = self.changes = changes
        self.own_approval = own_approval
        self.is_trusted = is_trusted
        """True if the toolbox that has the server of a tool says that the tool is read-only."""

    @override
    def _compile(self) -> CompiledTool:
        original = compile_tool(self.tool)
        if self.is_trusted:
            original = replace(original, get_distrust=None)
        if not self.changes:
            return original
        may_be_remote = original.function is None and original.kind == "async"
        return replace(
            original,
            inputs=original.inputs.change(self._change_inputs),
            fill=self._fill,
            call=partial(self._call, original.call) if may_be_remote else original.call,
            # Not called directly if `_fill` adds values.
            plain_function=None if self.changes.injectors else original.plain_function,
            parameters=self.changes.change_parameters(original.parameters),
        )

    @override
    def change_rules(self, rules: list[tuple[int, ApprovalOption]], index: int) -> list[tuple[int, ApprovalOption]]:
        rules = [*rules, (index, self.own_approval)]
        if not self.changes:
            return rules
        return [(place, _adapt(rule, self.changes) if callable(rule) else rule) for place, rule in rules]

    def _change_inputs(self, inputs: Inputs) -> dict[str, Any]:
        def validate_json(text: str | bytes, **options: Any) -> Any:
            return validate(parse_json(text), **options)

        validate = partial(self.changes.validate, inputs)
        return {
            "schema": self.changes.change_schema(inputs.schema) if inputs.schema.get("properties") else inputs.schema,
            "validate_json": validate_json,
            "validate_python": validate,
            "injected": inputs.injected | self.changes.hidden,
            "view": (inputs.view, self.changes.key),
            "get_hidden": lambda *given: [*inputs.get_hidden(*given), *self.changes.get_hidden_values(*given)],
        }

    async def _call(self, call: Callable[..., Any], arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        """Call a tool of a server."""
        try:
            return await call(arguments, context)
        except InvalidArguments as error:
            raise self.changes.relabel_error(error) from error.__cause__

    def _fill(self, values: dict[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
        original = compile_tool(self.tool)
        return original.fill(self.changes.inject(original.inputs, values, context), context)

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        return await self.tool.invoke(self.changes.complete(arguments, context), context)


class UnfitTool(RenamedTool):
    """A tool that an override no longer fits. It is not listed, and a call reports the reason."""

    def __init__(self, tool: Tool, name: str, reason: str) -> None:
        super().__init__(tool, name)
        self.options = tool.options.with_(enabled=False)
        self.change = self.reason = reason

    @override
    def _compile(self) -> CompiledTool:
        raise DefinitionError(self.reason)
