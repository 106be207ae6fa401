"""All errors that Toolmason raises, grouped by who has to act.

ToolmasonError
├─ DefinitionError       developer: a tool, toolbox or prompt cannot be built
│  ├─ DuplicateTool      two tools have the same name
│  ├─ UnsupportedType    a parameter's type has no JSON Schema
│  ├─ LossyDefinition    a provider's format would change the meaning of a tool
│  └─ PluginError        plugin author: an entry point or scanned module provides no tools
├─ ConfigError           developer or operator: a setting, file or injected value is missing or invalid
│  ├─ StoreUnavailable      operator: a file or database cannot be reached or written now
│  └─ UnsupportedProvider   unknown provider or model
├─ UnknownName           developer: no tool, prompt, resource or run has this name; also a KeyError
├─ ExperimentalError     developer: an experimental API was used without permission
├─ ModelError            failure: a model was unreachable, refused the request, or sent an invalid response
├─ AnswerError           failure: a run ended without an answer of the wanted type
├─ RunTaken              another process holds the lock of the run
├─ ToolCallError         one call failed; its result carries the error and the model reads it
│  ├─ UnknownTool        refusal: the model named a tool that does not exist
│  ├─ InvalidArguments   refusal: the model's arguments are invalid
│  ├─ ToolError          the tool's own message for the model
│  ├─ ExecutionError     failure: the tool raised any other exception
│  ├─ ApprovalRequired   refusal: a human has to decide first; carries the request
│  ├─ ExternalCall       the application has to run the tool; carries the arguments
│  ├─ ApprovalDenied     refusal: a human denied the call, or no valid decision was given
│  ├─ InsufficientScope  refusal: the caller lacks a scope that the tool needs; names them
│  ├─ LimitExceeded      refusal: a limit is reached; names it
│  ├─ ToolTimeout        failure: the deadline passed
│  ├─ ToolCancelled      the call was cancelled
│  ├─ ResultError        failure: the tool ran, but its result cannot be sent
│  ├─ UnknownOutcome     failure: the call was interrupted, and it is unknown whether it completed
│  └─ RemoteError        failure: a server was unreachable or violated the protocol
└─ Abort                 raised by a tool to stop the whole run; never shown to the model

StaleManifest            a warning, not an error: a manifest is older than the code it lists
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from toolmason._pickling import copy_error, make_error_picklable, make_picklable, rebuild
from toolmason._text import MAX_NAMES_SHOWN, MAX_PROBLEMS_SHOWN, advise_on_provider, find_close_names
from toolmason._text import ArgumentProblem as ArgumentProblem  # noqa: PLC0414 - re-exported
from toolmason._text import clip as clip  # noqa: PLC0414 - as above
from toolmason._text import safe_str as safe_str  # noqa: PLC0414 - as above

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Literal

    LogKind = Literal["failure", "answer", "known"]

__all__ = [
    "Abort",
    "AnswerError",
    "ApprovalDenied",
    "ApprovalRequired",
    "ArgumentProblem",
    "ConfigError",
    "DefinitionError",
    "DuplicateTool",
    "ExecutionError",
    "ExperimentalError",
    "ExternalCall",
    "InsufficientScope",
    "InvalidArguments",
    "LimitExceeded",
    "LossyDefinition",
    "ModelError",
    "PluginError",
    "RemoteError",
    "ResultError",
    "RunTaken",
    "StaleManifest",
    "StoreUnavailable",
    "ToolCallError",
    "ToolCancelled",
    "ToolError",
    "ToolTimeout",
    "ToolmasonError",
    "UnknownName",
    "UnknownOutcome",
    "UnknownTool",
    "UnsupportedProvider",
    "UnsupportedType",
]


class ToolmasonError(Exception):
    """Base class of every error that this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # A tool may run in another process, where an error that cannot be pickled is lost.
        return rebuild, (type(self), self.args, make_picklable(self.__dict__), make_error_picklable(self.__cause__))

    __copy__ = copy_error


class StaleManifest(UserWarning):
    """A manifest is older than the code it lists; names the module. Run `toolmason build` to update it."""


class DefinitionError(ToolmasonError):
    """A tool, prompt or toolbox cannot be built as written; names the location and the fix."""


class DuplicateTool(DefinitionError):
    """Two tools, prompts or resources in one toolbox have the same name."""

    def __init__(self, name: str, first: str, second: str, *, kind: str = "tools") -> None:
        self.name = name
        self.first = first
        """Origin of the tool that was added first."""
        self.second = second
        """Origin of the tool that was refused."""
        super().__init__(
            f"Two {kind} are named {name!r}: {first}{f' and {second}' if first != second else ', twice'}. Rename one "
            "with `name=`, add a prefix with `.prefixed(...)`, or replace the first with `add(..., replace=True)`."
        )


class UnsupportedType(DefinitionError):
    """A parameter's type has no JSON Schema."""


class LossyDefinition(DefinitionError):
    """A tool would change its meaning in the provider's format."""

    def __init__(self, tool: str, provider: str, losses: Iterable[Any]) -> None:
        self.tool, self.provider, self.losses = tool, provider, tuple(losses)
        descriptions = "; ".join(str(loss) for loss in self.losses[:MAX_PROBLEMS_SHOWN])
        super().__init__(
            f"Tool {tool!r} cannot be represented for {provider} without changing its meaning: {descriptions}. "
            'Change its schema, use strict="auto", or allow it with lossy=True.'
        )


class PluginError(DefinitionError):
    """An entry point or scanned module failed to load or provides no tools; the cause is kept."""

    def __init__(self, name: str, value: str, reason: str, *, distribution: str | None = None) -> None:
        self.name = name
        """Name of the entry point or module."""
        self.value = value
        """Value of the entry point: `module` or `module:object`."""
        self.reason = reason
        self.distribution = distribution
        """Distribution that provides the entry point; `None` for a scanned module."""
        if distribution is None:
            super().__init__(f"The module {value!r} provides no tools: {reason}. Fix it, or exclude it.")
        else:
            super().__init__(
                f"The plugin {name!r} of distribution {distribution!r} ({value}) provides no tools: {reason}. "
                f"Update or uninstall {distribution!r}, or report it to its author."
            )


class ConfigError(ToolmasonError):
    """A setting or injected value is missing or invalid."""


class StoreUnavailable(ConfigError):
    """A file or database cannot be reached or written now; the same may succeed later."""


class UnsupportedProvider(ConfigError, ValueError):
    """The provider or model type is unknown; `known` lists the supported ones."""

    def __init__(self, name: object, known: Iterable[str], *, example: str = "") -> None:
        self.name, self.known = name, tuple(known)
        advice = advise_on_provider(str(name), self.known, example)
        super().__init__(f"Unknown provider {clip(str(name))!r}.{advice} Available: {', '.join(self.known)}.")


class ModelError(ToolmasonError):
    """A model could not be reached, refused the request, or sent an invalid response."""

    def __init__(
        self, provider: str, reason: str, *, status: int | None = None, code: str = "", retryable: bool = False
    ) -> None:
        self.provider, self.reason = provider, reason
        self.status = status
        """HTTP status, if the provider responded."""
        self.code = code
        """The provider's error code, such as `rate_limit_exceeded`."""
        self.retryable = retryable
        """True if the same request may succeed later."""
        self.retry_after: float | None = None
        """Seconds that the provider asked the client to wait."""
        status_text = f" answered {status}" if status is not None else ""
        super().__init__(f"{provider}{status_text}: {clip(reason, 500)}")


class UnknownName(ToolmasonError, KeyError):
    """No tool, prompt, resource or run has this name."""

    def __str__(self) -> str:
        return str(self.args[0])  # that of KeyError has quotes around it


class ExperimentalError(ToolmasonError):
    """An experimental API was used without permission."""

    def __init__(self, name: str, reason: str = "") -> None:
        self.name, self.reason = name, reason
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"{name} is experimental{why}: it may change or be removed without notice. Allow it with "
            "`toolmason.extend.allow_experimental()`, or set TOOLMASON_EXPERIMENTAL=true."
        )


class Abort(ToolmasonError):
    """Raise it from a tool to stop the whole run. The model never sees it."""


def _scrub(text: str) -> str:
    from toolmason._secrets import scrub  # noqa: PLC0415 - 1 ms at start-up, needed only for a failure

    return scrub(text)


class ToolCallError(ToolmasonError):
    """One call failed. The result carries the error; the model reads `to_model()`."""

    code: ClassVar[str] = "tool_call_error"
    """Stable identifier of this kind of failure."""
    log_id: str = ""
    """ID of the failure in the log, if it was logged or redacted."""
    is_of_call = False
    """True if it was raised for the result of a call, as opposed to raised by a tool."""
    log_kind: LogKind = "failure"
    """How the log shows it: as a failure of the tool, as an answer of the tool, or not at all, if this process has
    logged it already."""

    def __init__(self, message: str, *, tool: str = "", retryable: bool = False) -> None:
        super().__init__(message)
        # An unpaired surrogate would make the whole conversation impossible to encode.
        self.message = message if message.isascii() else message.encode("utf-8", "backslashreplace").decode("utf-8")
        self.tool = tool
        self.retryable = retryable

    def to_model(self) -> dict[str, Any]:
        """Return the JSON object that the model reads."""
        return {"error": {"code": self.code, "message": self.message, "tool": self.tool, "retryable": self.retryable}}


class UnknownTool(ToolCallError):
    """The model requested a tool that the toolbox does not contain."""

    code = "unknown_tool"

    def __init__(
        self,
        name: str,
        known: Iterable[str],
        *,
        is_disabled: bool = False,
        down: Sequence[str] = (),
        held_back: str = "",
    ) -> None:
        self.name, self.known = name, tuple(known)
        self.held_back = held_back
        """Reason why a tool of a server that has the name is not used, or an empty string."""
        self.down = tuple(down)
        """Servers whose tools are not known, because they do not answer."""
        self.is_disabled = is_disabled
        """True if the toolbox has the tool, but not for this caller."""
        self.close = tuple(find_close_names(name, self.known))
        if held_back:
            super().__init__(f"Tool {clip(name)!r} is held back: {held_back}", tool=clip(name), retryable=False)
            return
        if self.close:
            hint = f"Did you mean {' or '.join(map(repr, self.close))}?"
        elif is_disabled:
            hint = "It is not enabled for this caller."
        elif not self.known:
            hint = "No tools are available."
        else:
            shown = ", ".join(self.known[:MAX_NAMES_SHOWN])
            more = f" and {len(self.known) - MAX_NAMES_SHOWN} more" if len(self.known) > MAX_NAMES_SHOWN else ""
            hint = f"Available: {shown}{more}."
        if self.down:
            hint += f" These servers do not answer, so their tools are not known: {', '.join(self.down)}."
        super().__init__(f"No tool named {clip(name)!r}. {hint}", tool=clip(name), retryable=True)


class InvalidArguments(ToolCallError):
    """The model's arguments are invalid; reports every problem at once. The tool was not run."""

    code = "invalid_arguments"

    def __init__(self, problems: Iterable[ArgumentProblem], *, tool: str = "", raw: str | None = None) -> None:
        self.problems = tuple(problems)
        self.raw = raw
        """The received text, if it could not be parsed as JSON."""
        lines = [f"{path}: {message}" for path, message, _, _ in self.problems[:MAX_PROBLEMS_SHOWN]]
        if (more := len(self.problems) - MAX_PROBLEMS_SHOWN) > 0:
            lines.append(f"and {more} more")
        super().__init__(f"Invalid arguments: {'; '.join(lines)}", tool=tool, retryable=True)

    @property
    def cut_off(self) -> bool:
        """True if the text ended too early instead of being malformed."""
        return any(problem.expected == CUT_OFF for problem in self.problems)

    def to_model(self) -> dict[str, Any]:
        """Return the JSON object that the model reads, with one entry for each problem."""
        payload = super().to_model()
        payload["error"]["parameters"] = [problem.to_dict() for problem in self.problems[:MAX_PROBLEMS_SHOWN]]
        return payload


CUT_OFF = "the rest of the JSON text"
"""Value of `expected` for an argument text that ends too early."""


class ToolError(ToolCallError):
    """Raise it from a tool to send its message to the model unchanged.

    `data` stays with the application; the model never sees it.
    """

    code = "tool_error"
    log_kind: LogKind = "answer"

    def __init__(self, message: str, *, retryable: bool = False, data: Any = None) -> None:
        super().__init__(message, retryable=retryable)
        self.data = data
        self.result_fields: dict[str, Any] = {}
        """Other fields of the result: `content`, `structured`, `meta`."""


class ExecutionError(ToolCallError):
    """The tool raised an exception that is not meant for the model; the cause is kept."""

    code = "execution_error"

    def __init__(self, tool: str, cause: BaseException, *, retryable: bool = False) -> None:
        detail = _scrub(safe_str(cause))
        message = f"{tool} failed: {type(cause).__name__}" + (f": {detail}" if detail else "")
        super().__init__(message, tool=tool, retryable=retryable)
        self.__cause__ = cause


class ApprovalRequired(ToolCallError):
    """The call is waiting for a decision; `request` can be saved, decided and resumed later. The tool was not run."""

    code = "approval_required"

    def __init__(self, tool: str, request: Any) -> None:
        self.request = request
        why = f" {request.reason}" if getattr(request, "reason", "") else ""
        super().__init__(f"{tool} needs human approval before it runs. It was not run.{why}", tool=tool)


class ExternalCall(ToolCallError):
    """The application or its front end has to run the call, with the valid `arguments`. The tool was not run."""

    code = "external_call"

    def __init__(self, tool: str, arguments: Mapping[str, Any] | None = None) -> None:
        self.arguments = dict(arguments or {})
        super().__init__(
            f"{tool} is run by the application, and was not run here. "
            "Pass its result to `chat.resume(reply, results=[...])`.",
            tool=tool,
        )


class ApprovalDenied(ToolCallError):
    """The call was denied. The tool was not run."""

    code = "approval_denied"

    def __init__(self, tool: str, reason: str = "") -> None:
        self.reason = reason
        why = f": {reason.rstrip('.')}" if reason else ""
        super().__init__(f"{tool} was not allowed to run{why}. Do not try to work around this.", tool=tool)


class InsufficientScope(ToolCallError):
    """The caller lacks a scope that the tool needs. The tool was not run."""

    code = "insufficient_scope"

    def __init__(self, tool: str, missing: Iterable[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(f"{tool} was not run: the caller lacks the scope {' '.join(self.missing)!r}.", tool=tool)


class LimitExceeded(ToolCallError):
    """A limit is reached. The tool was not run."""

    code = "limit_exceeded"

    def __init__(self, tool: str, limit: str, advice: str, *, retryable: bool = False, ends_run: bool = False) -> None:
        self.limit = limit
        self.ends_run = ends_run
        """True if no other call of the run can succeed either."""
        self.retry_after: float | None = None
        """Seconds after which the call may succeed, if known."""
        super().__init__(f"{tool} was not run: the {limit} has been reached. {advice}", tool=tool, retryable=retryable)


class ToolTimeout(ToolCallError):
    """The deadline passed before the tool finished; its outcome is unknown, unless it has not `began`."""

    code = "timeout"

    def __init__(
        self,
        tool: str,
        seconds: float,
        *,
        limit: str = "timeout",
        retryable: bool = False,
        began: bool = True,
        is_harmless: bool = False,
    ) -> None:
        self.seconds, self.limit = seconds, limit
        effect = "" if is_harmless else " It may still have had an effect."
        text = f"{tool} did not finish within its {limit} of {seconds:g} s.{effect}"
        if not began:
            text = f"{tool} was not found within {seconds:g} s: a server did not answer. Nothing was run."
        super().__init__(text, tool=tool, retryable=retryable)


class ToolCancelled(ToolCallError):
    """The call was cancelled before it finished."""

    code = "cancelled"

    def __init__(self, tool: str, reason: str = "the run was stopped") -> None:
        super().__init__(f"{tool} was cancelled: {reason}.", tool=tool)


class ResultError(ToolCallError):
    """The tool ran, but its result cannot be sent: NaN, a cycle, or an object without a JSON form."""

    code = "result_error"

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"{tool} ran, but its result cannot be sent: {reason}", tool=tool)


class UnknownOutcome(ToolCallError):
    """A call was interrupted, it is unknown whether it completed, and it is not safe to repeat."""

    code = "unknown_outcome"

    def __init__(self, tool: str, key: str = "") -> None:
        self.key = key
        """Key of the call within its run."""
        super().__init__(
            f"{tool} was interrupted, and it is unknown whether it completed. It was not run again. "
            "Check its effects before you call it again.",
            tool=tool,
        )


class AnswerError(ToolmasonError):
    """A run ended without an answer of the wanted type."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"No typed answer: {clip(reason, 500)}")


class RunTaken(ToolmasonError):
    """Another process holds the lock of the run."""

    def __init__(self, run: str, seconds: float) -> None:
        self.run, self.seconds = run, seconds
        super().__init__(f"Run {run!r} is locked by another process. Try again in {max(seconds, 0.0):.0f} s.")


class RemoteError(ToolCallError):
    """A server could not be reached or violated the protocol."""

    code = "remote_error"

    def __init__(
        self, server: str, phase: str, reason: str, *, tool: str = "", stderr: str = "", retryable: bool = False
    ) -> None:
        self.server = server
        self.phase = phase
        """Operation that failed: `connect`, `list`, `call`, `read` …"""
        self.reason = reason = _scrub(reason.rstrip("."))
        """Root cause."""
        self.stderr = stderr = _scrub(stderr)
        """Last line that the server wrote to standard error."""
        stderr_text = f" Last stderr line: {clip(stderr, 200)}" if stderr else ""
        super().__init__(f"Server {server!r}, {phase}: {reason}.{stderr_text}", tool=tool, retryable=retryable)

    def to_model(self) -> dict[str, Any]:
        """Return the JSON object that the model reads, without the server's standard error."""
        payload = super().to_model()
        payload["error"]["message"] = f"Server {self.server!r}, {self.phase}: {self.reason}."
        return payload
