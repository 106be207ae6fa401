"""The error tree: everything this package raises on purpose, split by who must act.

    ToolmasonError
    ├─ DefinitionError       the developer: a tool, toolbox or prompt that cannot be built
    │  ├─ DuplicateTool
    │  ├─ UnsupportedType
    │  ├─ LossyDefinition    a tool means something else in the form that a provider takes
    │  └─ PluginError        the plugin's author: what an entry point or a scanned module gives is no tool
    ├─ ConfigError           the developer or operator: a setting, file or injected value
    │  └─ UnsupportedProvider   a provider or model that we do not know
    ├─ ExperimentalError     the developer: an API that may still change, used without leave
    ├─ ModelError            failure: a model could not be reached, refused the request, or answered nonsense
    ├─ RunTaken              another process drives the run
    ├─ ToolCallError         what one call came to; results carry it, the model reads it
    │  ├─ UnknownTool        refusal: the model named something that is not there
    │  ├─ InvalidArguments   refusal: the model's arguments do not fit
    │  ├─ ToolError          the tool's own words for the model
    │  ├─ ExecutionError     failure: the tool raised something else
    │  ├─ ApprovalRequired   refusal: a human has to decide first; carries the request
    │  ├─ ApprovalDenied     refusal: a human, or the lack of a valid decision, said no
    │  ├─ LimitExceeded      refusal: a limit is used up; names it
    │  ├─ ToolTimeout        failure: the deadline passed
    │  ├─ ToolCancelled      the call was called off
    │  ├─ ResultError        failure: the tool ran, its result cannot be sent
    │  ├─ UnknownOutcome     failure: it was begun before an interruption, and whether it was done is not known
    │  └─ RemoteError        failure: a server could not be reached, or did not answer as it must
    └─ Abort                 raised by a tool to stop the whole run; never turned into text

    StaleManifest            a warning, not an error: a manifest is older than the code that it lists

Lives here: the classes and their wording. Not here: when they are raised, or what is shown under a
redacting policy (`_core.result`). Imports nothing of ours but `_travel`, the way over a process border, and `_words`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from toolmason._pickling import make_cause_picklable, make_picklable, rebuild
from toolmason._text import ArgumentProblem as ArgumentProblem  # noqa: PLC0414 - it is a name of this module
from toolmason._text import clip as clip  # noqa: PLC0414 - as above
from toolmason._text import safe_str as safe_str  # noqa: PLC0414 - as above

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Abort",
    "ApprovalDenied",
    "ApprovalRequired",
    "ArgumentProblem",
    "ConfigError",
    "DefinitionError",
    "DuplicateTool",
    "ExecutionError",
    "ExperimentalError",
    "InvalidArguments",
    "LimitExceeded",
    "LossyDefinition",
    "ModelError",
    "PluginError",
    "RemoteError",
    "ResultError",
    "RunTaken",
    "StaleManifest",
    "ToolCallError",
    "ToolCancelled",
    "ToolError",
    "ToolTimeout",
    "ToolmasonError",
    "UnknownOutcome",
    "UnknownTool",
    "UnsupportedProvider",
    "UnsupportedType",
]

MAX_NAMES_SHOWN = 20
"""How many tool names an `UnknownTool` message lists, so that a large toolbox does not fill the context."""

MAX_PROBLEMS_SHOWN = 20
"""How many argument problems the model is told at once; `problems` has them all."""


class ToolmasonError(Exception):
    """Root of everything this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # A tool may run in another process: an error that cannot be pickled is lost there.
        return rebuild, (type(self), self.args, make_picklable(self.__dict__), make_cause_picklable(self.__cause__))


class StaleManifest(UserWarning):
    """A manifest is older than the code that it lists; names the module. `toolmason build` brings it up to date."""


class DefinitionError(ToolmasonError):
    """A tool, prompt or toolbox that cannot be built as written; names the place and the fix."""


class DuplicateTool(DefinitionError):
    """Two tools of one name in one toolbox."""

    def __init__(self, name: str, first: str, second: str) -> None:
        self.name, self.first, self.second = name, first, second
        super().__init__(
            f"Two tools are named {name!r}: {first} and {second}. Rename one with `name=`, "
            "give one a prefix with `.prefixed(...)`, or mean it with `add(..., replace=True)`."
        )


class UnsupportedType(DefinitionError):
    """A parameter whose type has no JSON Schema."""


class LossyDefinition(DefinitionError):
    """A tool that would mean something else in the form that a provider takes."""

    def __init__(self, tool: str, provider: str, losses: Iterable[Any]) -> None:
        self.tool, self.provider, self.losses = tool, provider, tuple(losses)
        descriptions = "; ".join(str(loss) for loss in self.losses[:MAX_PROBLEMS_SHOWN])
        super().__init__(
            f"Tool {tool!r} cannot be said to {provider} without a change of meaning: {descriptions}. "
            'Change its schema, use strict="auto", or allow it with lossy=True.'
        )


class PluginError(DefinitionError):
    """What an entry point or a scanned module names could not be loaded, or gives no tools; the cause is kept."""

    def __init__(self, name: str, value: str, reason: str, *, distribution: str | None = None) -> None:
        self.name = name
        """The name of the entry point, or of the module."""
        self.value = value
        """What the entry point names: `module` or `module:object`."""
        self.reason = reason
        self.distribution = distribution
        """The distribution that offers it; `None` for a module that was scanned."""
        if distribution is None:
            super().__init__(f"The module {value!r} gives no tools: {reason}. Correct it, or leave it out.")
        else:
            super().__init__(
                f"The plugin {name!r} of distribution {distribution!r} ({value}) gives no tools: {reason}. "
                f"Update or uninstall {distribution!r}, or tell its author."
            )


class ConfigError(ToolmasonError):
    """A setting or injected value that is missing or wrong."""


class UnsupportedProvider(ConfigError, ValueError):
    """A provider, or a kind of model, of a name that we do not know; `known` has those we do."""

    def __init__(self, name: object, known: Iterable[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"{clip(str(name))!r} is not a provider that we know. There are: {', '.join(self.known)}.")


class ModelError(ToolmasonError):
    """A model could not be reached, refused the request, or answered what cannot be read."""

    def __init__(
        self, provider: str, reason: str, *, status: int | None = None, code: str = "", retryable: bool = False
    ) -> None:
        self.provider, self.reason = provider, reason
        self.status = status
        """The HTTP status, where one came."""
        self.code = code
        """The provider's own word for it, such as `rate_limit_exceeded`."""
        self.retryable = retryable
        """Whether the same request may succeed later."""
        self.retry_after: float | None = None
        """How many seconds the provider asked us to wait."""
        status_text = f" answered {status}" if status is not None else ""
        super().__init__(f"{provider}{status_text}: {clip(reason, 500)}")


class ExperimentalError(ToolmasonError):
    """An API that may still change was used, and nobody allowed that."""

    def __init__(self, name: str, reason: str = "") -> None:
        self.name, self.reason = name, reason
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"{name} is experimental{why}: it may change or go without notice. Allow it with "
            "`toolmason.extend.allow_experimental()`, or set TOOLMASON_EXPERIMENTAL=true."
        )


class Abort(ToolmasonError):
    """Raise it from a tool to stop the whole run; it is never turned into text for the model."""


class ToolCallError(ToolmasonError):
    """What went wrong with one call; a result carries it, and `to_model()` is what the model reads."""

    code: ClassVar[str] = "tool_call_error"
    """Stable word for this kind of failure."""

    def __init__(self, message: str, *, tool: str = "", retryable: bool = False) -> None:
        super().__init__(message)
        # Half a surrogate pair would make the whole conversation impossible to encode.
        self.message = message if message.isascii() else message.encode("utf-8", "backslashreplace").decode("utf-8")
        self.tool = tool
        self.retryable = retryable

    def to_model(self) -> dict[str, Any]:
        """Return the JSON object that the model reads."""
        return {"error": {"code": self.code, "message": self.message, "tool": self.tool, "retryable": self.retryable}}


class UnknownTool(ToolCallError):
    """The model asked for a tool that the toolbox does not hold."""

    code = "unknown_tool"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        from difflib import get_close_matches  # noqa: PLC0415 - 2 ms at start-up, for the rare call

        self.name, self.known = name, tuple(known)
        self.close = tuple(get_close_matches(name[:128], self.known, n=3, cutoff=0.6))
        if self.close:
            hint = f"Did you mean {' or '.join(map(repr, self.close))}?"
        elif not self.known:
            hint = "There are no tools here."
        else:
            shown = ", ".join(self.known[:MAX_NAMES_SHOWN])
            more = f" and {len(self.known) - MAX_NAMES_SHOWN} more" if len(self.known) > MAX_NAMES_SHOWN else ""
            hint = f"There are: {shown}{more}."
        super().__init__(f"No tool named {clip(name)!r}. {hint}", tool=clip(name), retryable=True)


class InvalidArguments(ToolCallError):
    """The model's arguments do not fit; every problem at once. The tool was not run."""

    code = "invalid_arguments"

    def __init__(self, problems: Iterable[ArgumentProblem], *, tool: str = "", raw: str | None = None) -> None:
        self.problems = tuple(problems)
        self.raw = raw
        """The text as it came, where it could not be read as JSON."""
        lines = [f"{path}: {message}" for path, message, _, _ in self.problems[:MAX_PROBLEMS_SHOWN]]
        if (more := len(self.problems) - MAX_PROBLEMS_SHOWN) > 0:
            lines.append(f"and {more} more")
        super().__init__(f"The arguments do not fit: {'; '.join(lines)}", tool=tool, retryable=True)

    @property
    def cut_off(self) -> bool:
        """Whether the text ended too early, as against being malformed."""
        return any(problem.expected == CUT_OFF for problem in self.problems)

    def to_model(self) -> dict[str, Any]:
        """Return the JSON object that the model reads, with one entry for each problem."""
        payload = super().to_model()
        payload["error"]["parameters"] = [problem.to_dict() for problem in self.problems[:MAX_PROBLEMS_SHOWN]]
        return payload


CUT_OFF = "the rest of the JSON text"
"""What is expected where an argument text ends too early."""


class ToolError(ToolCallError):
    """Raise it from a tool: its text goes to the model as it is.

    `data` stays with the application; the model never sees it.
    """

    code = "tool_error"

    def __init__(self, message: str, *, retryable: bool = False, data: Any = None) -> None:
        super().__init__(message, retryable=retryable)
        self.data = data
        self.result_fields: dict[str, Any] = {}
        """What its result holds beside the text: `content`, `structured`, `meta`."""


class ExecutionError(ToolCallError):
    """The tool raised something that it did not mean for the model; the cause is kept."""

    code = "execution_error"

    def __init__(self, tool: str, cause: BaseException, *, retryable: bool = False) -> None:
        detail = safe_str(cause)
        message = f"{tool} failed: {type(cause).__name__}" + (f": {detail}" if detail else "")
        super().__init__(message, tool=tool, retryable=retryable)
        self.__cause__ = cause


class ApprovalRequired(ToolCallError):
    """The call waits for a decision; `request` can be saved, decided and resumed later. The tool was not run."""

    code = "approval_required"

    def __init__(self, tool: str, request: Any) -> None:
        self.request = request
        super().__init__(f"{tool} needs the approval of a human before it runs. It was not run.", tool=tool)


class ApprovalDenied(ToolCallError):
    """The call was refused; the tool was not run."""

    code = "approval_denied"

    def __init__(self, tool: str, reason: str = "") -> None:
        self.reason = reason
        why = f": {reason}" if reason else ""
        super().__init__(f"{tool} was not allowed to run{why}. Do not try to get round this.", tool=tool)


class LimitExceeded(ToolCallError):
    """A limit is used up; the tool was not run."""

    code = "limit_exceeded"

    def __init__(self, tool: str, limit: str, advice: str, *, retryable: bool = False) -> None:
        self.limit = limit
        super().__init__(f"{tool} was not run: the {limit} is used up. {advice}", tool=tool, retryable=retryable)


class ToolTimeout(ToolCallError):
    """The deadline passed before the tool was done; its outcome is unknown."""

    code = "timeout"

    def __init__(self, tool: str, seconds: float, *, limit: str = "timeout", retryable: bool = False) -> None:
        self.seconds, self.limit = seconds, limit
        super().__init__(
            f"{tool} did not finish within its {limit} of {seconds:g} s. It may still have had an effect.",
            tool=tool,
            retryable=retryable,
        )


class ToolCancelled(ToolCallError):
    """The call was called off before it was done."""

    code = "cancelled"

    def __init__(self, tool: str, reason: str = "the run was cancelled") -> None:
        super().__init__(f"{tool} was called off: {reason}.", tool=tool)


class ResultError(ToolCallError):
    """The tool ran, but its result cannot be sent: NaN, a cycle, an object without a JSON form."""

    code = "result_error"

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"{tool} ran, but its result cannot be sent: {reason}", tool=tool)


class UnknownOutcome(ToolCallError):
    """A call was begun, and nobody knows whether it was done; it is not one that may be done twice."""

    code = "unknown_outcome"

    def __init__(self, tool: str, key: str = "") -> None:
        self.key = key
        """What the call is named in its run."""
        super().__init__(
            f"{tool} was begun before an interruption, and whether it was done is not known. It was not run again. "
            "Find out what it did before you ask for it again.",
            tool=tool,
        )


class RunTaken(ToolmasonError):
    """Another process drives the run."""

    def __init__(self, run: str, seconds: float) -> None:
        self.run, self.seconds = run, seconds
        super().__init__(f"The run {run!r} is driven by another process. Try again in {max(seconds, 0.0):.0f} s.")


class RemoteError(ToolCallError):
    """A server could not be reached, or did not answer as it must."""

    code = "remote_error"

    def __init__(
        self, server: str, phase: str, reason: str, *, tool: str = "", stderr: str = "", retryable: bool = False
    ) -> None:
        self.server = server
        self.phase = phase
        """What was being done: `connect`, `list`, `call`, `read` …"""
        self.reason = reason = reason.rstrip(".")
        """What is at the root of it, in words."""
        self.stderr = stderr
        """The last line that the server wrote to its standard error."""
        stderr_text = f" Its last words: {clip(stderr, 200)}" if stderr else ""
        super().__init__(f"Server {server!r}, {phase}: {reason}.{stderr_text}", tool=tool, retryable=retryable)

    def to_model(self) -> dict[str, Any]:
        """Return the JSON object that the model reads; what a process wrote to its standard error is not for it."""
        payload = super().to_model()
        payload["error"]["message"] = f"Server {self.server!r}, {self.phase}: {self.reason}."
        return payload
