"""Request an answer of a type, validate it as a tool's arguments are, and explain a wrong one to the model."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias

from pydantic_core import to_json
from typing_extensions import TypeVar

from toolmason._core.arguments.bind import Bound, make_binder
from toolmason._core.arguments.key_counts import make_key_counts
from toolmason._core.arguments.problems import get_details, reject
from toolmason._core.call.call_policy import run_in_time
from toolmason._core.catalog.catalog import FINAL_ANSWER
from toolmason._core.define.decorators import MISSING, Declaration, ParamSpec
from toolmason._core.define.inputs import schema_compiler
from toolmason._core.define.schema_nodes import resolve_root
from toolmason._core.define.signature import admits_none, get_function_name
from toolmason._core.define.tool import FunctionTool, compile_tool
from toolmason._core.run.execute import call_user_function
from toolmason._core.toolbox.exchange import (
    AnswerFormat,
    AnswerMode,
    ArgumentsDelta,
    CallOpened,
    ModelEvent,
    ModelReply,
    ModelRequest,
    StreamEvent,
    TextDelta,
    ToolChoice,
    add_answer,
)
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.messages import Message
from toolmason._core.values.results import Arguments, ToolCall, ToolResult
from toolmason._wire import parse_json
from toolmason.chat.loop import SystemAddition
from toolmason.errors import Abort, ExecutionError, ToolCallError, ToolError, UnsupportedType
from toolmason.models.protocol import Model
from toolmason.providers.answer_rules import choose_answer
from toolmason.providers.codec import Codec

OutputT = TypeVar("OutputT", default=None)
Check: TypeAlias = Callable[[Any], Awaitable[Any] | Any]
"""Function that takes an answer and raises `ToolError` to refuse it, sync or async."""
_KEY: Final = "answer"
"""Key of an answer that is not an object."""
_NOT_YET: Final = "This answer does not count, because another call of the same turn did not succeed. Answer again."
_MODEL_ERRORS: Final = ("invalid_arguments", "tool_error")
"""Codes of the errors that the model can correct."""
_ANY_TOOL: Final = ToolChoice("required")
_ANSWER: Final = ToolChoice("required", (FINAL_ANSWER,))
_FENCED: Final = re.compile(r"\s*```(?:json)?\s*(.*?)\s*```\s*", re.DOTALL)
_NUMBER_END: Final = re.compile(r"[-+.\dEe]+$")


@dataclass(frozen=True, slots=True)
class Answer(Generic[OutputT]):
    """How a run came to its typed answer."""

    mode: AnswerMode
    """`native`: the provider enforced the schema. `tool`: a call was the answer. `json`: the model was asked for it."""
    attempts: int = 0
    """Number of answers that the model sent, with the wrong ones."""
    problem: str = ""
    """Reason that `Reply.output` raises an error, or an empty string."""
    text: str = ""
    """JSON of the answer, as the model sent it."""
    value: OutputT | None = None
    """The answer; see `Reply.output`."""
    cause: ToolCallError | None = field(default=None, repr=False)
    """Error of the last wrong answer."""


@dataclass(frozen=True, slots=True)
class AnswerProgress(StreamEvent):
    """Part of a typed answer that the model has written so far, as JSON data. All its values are valid."""

    data: Any


class AnswerType:
    """Type of an answer, compiled once: its schema, its validator, and the ways to request it."""

    def __init__(self, output: Any, box: Toolbox) -> None:
        self.checks: list[Check] = []
        self._state = get_state(box)
        self.is_wrapped = not _is_object(output)
        """True if the answer is an object with one key."""
        tool = _make_tool(output, is_wrapped=self.is_wrapped)
        self.definition = tool.definition
        inputs = compile_tool(tool).inputs
        self.validate_json = inputs.validate_json
        self._bind = make_binder(inputs, FINAL_ANSWER, self._state.policy.settings, make_key_counts(inputs))
        self._formats: dict[Any, AnswerFormat] = {}
        self.instructions = (
            "When you have the final answer, write only JSON that matches this schema, without a code fence: "
            f"{to_json(self.definition.input_schema).decode()}"
        )

    def choose_format(self, request: ModelRequest, model: Model) -> AnswerFormat:
        """Return how to request the answer: as the model's provider supports it, or else as a tool."""
        # What the choice depends on: it costs more than all else in a turn.
        has_tools = bool(request.tools or request.native)
        mode = request.tool_choice and request.tool_choice.mode
        key = (has_tools, mode, request.options.get("answer"), model.name)
        if key not in self._formats:
            codec = getattr(model, "codec", None)
            rules = codec.rules if isinstance(codec, Codec) else None
            self._formats[key] = choose_answer(rules, self.definition, model.name, request)
        return self._formats[key]

    def bind(self, arguments: Arguments) -> Any:
        """Return an answer from its JSON.

        Raises:
            InvalidArguments: it does not match the type; lists every problem.
        """
        if isinstance(arguments, str) and not arguments.strip():
            reject(FINAL_ANSWER, "$", "the answer is empty", "a JSON object", "nothing")
        bound: Bound = self._bind(arguments)
        return bound[0].get(_KEY)

    async def check(self, value: Any) -> None:
        """Run the checks in order, each within the time-out of a call. Raises the error of the first that refuses."""
        for check in self.checks:
            work = call_user_function(check, value, settings=self._state.policy.settings)
            await run_in_time(get_function_name(check), (self._state.calls,), work)


def _make_tool(output: Any, *, is_wrapped: bool) -> FunctionTool:
    def final_answer(answer: Any) -> None: ...

    final_answer.__annotations__ = {_KEY: output}
    final_answer.__doc__ = "Give the final answer. Call it once, when you have everything that the answer needs."
    # A union with None is required as well: an empty object is not an answer.
    params = (ParamSpec(_KEY, required=True),) if is_wrapped and admits_none(output) else ()
    try:
        tool = FunctionTool(final_answer, Declaration("tool", flatten=not is_wrapped), params=params)
    except Exception as error:  # a value that is not a type may raise anything
        raise UnsupportedType(f"output={output!r}: a model cannot write this type. {error}") from error
    if not tool.definition.input_schema.get("properties"):
        raise UnsupportedType(f"output={output!r}: a model cannot write this type. The application injects it.")
    return tool


def _is_object(output: Any) -> bool:
    """Return True if the fields of a type can be the keys of the answer; other types are wrapped."""
    try:
        schema = resolve_root(schema_compiler().compile_type(output).schema)
    except Exception:  # noqa: BLE001 - as above; the tool of the type reports it
        return False
    return schema.get("type") == "object" and bool(schema.get("properties"))


class AnswerRun:
    """Typed answer of one run: what was requested and received so far."""

    def __init__(self, kind: AnswerType, model: Model, attempts: int = 0) -> None:
        self.kind, self._model = kind, model
        self.attempts = attempts
        """Number of answers that the model sent, in all processes that executed the run."""
        self.is_over = False
        """True if the run has its answer, or will not get one."""
        self._mode: AnswerMode = "tool"
        self._values: dict[str, Any] = {}
        """Valid answers by the ID of their call."""
        self._accepted = ("", "")
        """ID of the call that counts, and its JSON."""
        self._error: ToolCallError | None = None
        self._problem = ""
        self._is_forced = True
        self._progress: AnswerReader | None = None
        """Reader of the turn that is being written."""
        self._instructions = SystemAddition(kind.instructions)
        """Text of the system message in mode `json`."""
        self._last: tuple[ModelRequest, tuple[ToolDefinition, ...], ToolChoice | None, AnswerFormat] | None = None
        """The last request that was not like the one before, and the fields that were changed in it."""

    # --- requests ------------------------------------------------------------------------------------

    def apply(self, request: ModelRequest) -> ModelRequest:
        """Return a request that asks for the answer."""
        self._progress = None
        last = self._last
        if (
            last is None
            or last[0].tools is not request.tools
            or last[0].tool_choice is not request.tool_choice
            or last[0].options is not request.options
        ):
            self._last = last = (request, *self._make_changes(request))
        messages = self._instructions.apply(request.messages) if self._mode == "json" else request.messages
        return add_answer(request, messages, last[1], last[2], last[3])

    def _make_changes(
        self, request: ModelRequest
    ) -> tuple[tuple[ToolDefinition, ...], ToolChoice | None, AnswerFormat]:
        """Return the tools, the choice and the format for a request, and for those after it that are like it."""
        answer = self.kind.choose_format(request, self._model)
        self._mode = answer.mode
        if answer.mode != "tool":
            return request.tools, request.tool_choice, answer
        choice = request.tool_choice
        if choice is not None and choice.mode == "auto" and not choice.names:
            self._is_forced = False
        elif choice is None and self._is_forced:
            choice = _ANY_TOOL if request.tools or request.native else _ANSWER
        return (*request.tools, self.kind.definition), choice, answer

    def read_event(self, event: ModelEvent) -> AnswerProgress | None:
        """Return the progress that an event of the model's stream makes, or None."""
        if self._progress is None:
            self._progress = AnswerReader(self.kind)
        return self._progress.read(event)

    # --- answers -------------------------------------------------------------------------------------

    @property
    def is_accepted(self) -> bool:
        """True if the run has its answer."""
        return self.is_over and not self._problem

    def is_answer(self, calls: Sequence[ToolCall]) -> bool:
        """Return True if there are calls, and all are answers."""
        for call in calls:  # once for each step: `all` takes several times as long
            if call.name != FINAL_ANSWER:
                return False
        return bool(calls)

    def read_text(self, turn: int, reply: ModelReply) -> ToolCall | None:
        """Return the text of a reply as a call with the answer, or None if the model refused to give one."""
        if reply.finish in ("refusal", "filter"):
            refused = "the model refused to answer" if reply.finish == "refusal" else "a filter removed the answer"
            self._end(f"{refused}: {reply.text}" if reply.text else refused)
            return None
        fenced = _FENCED.fullmatch(reply.text)
        return ToolCall(f"answer_{turn}", FINAL_ANSWER, fenced[1] if fenced else reply.text)

    async def take(self, call: ToolCall) -> ToolResult:
        """Validate and check an answer. The result has the errors of arguments, and those of the checks."""
        try:
            value = self.kind.bind(call.raw)
            await self.kind.check(value)
        except Abort:
            raise
        except ToolCallError as error:
            return ToolResult(call.id, FINAL_ANSWER, error=error, attempts=1)
        except Exception as error:  # noqa: BLE001 - whatever a check raises becomes a result
            return ToolResult(call.id, FINAL_ANSWER, error=ExecutionError("a check of the answer", error), attempts=1)
        self._values[call.id] = value
        return ToolResult(call.id, FINAL_ANSWER, text="The answer is accepted.", attempts=1)

    def review(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> Sequence[ToolResult]:
        """Decide about the answers of a turn, and return its results. The first valid answer counts.

        It counts only if the other calls of the turn succeeded: it was written without their results.
        """
        if len(results) == 1 and results[0].name != FINAL_ANSWER:  # the usual step
            return results
        own = [index for index, result in enumerate(results) if result.name == FINAL_ANSWER]
        if not own:
            return results
        reviewed = [*results]
        accepted = next((index for index in own if results[index].ok), None)
        errors = [error for index in own if (error := results[index].error) is not None]
        self._error = errors[-1] if errors else None
        self.attempts += self._error is None or self._error.message != _NOT_YET
        if accepted is None:
            if self._error is not None and self._error.code not in _MODEL_ERRORS:
                self._end(self._error.message)
        elif all(result.ok for result in results if result.name != FINAL_ANSWER):
            [call] = [call for call in calls if call.id == results[accepted].call_id]
            if call.id not in self._values:
                self._values[call.id] = self.kind.bind(call.raw)  # the journal has results, but no values
            text = call.raw if isinstance(call.raw, str) else to_json(call.raw).decode()
            self._accepted = (call.id, text)
            self._end("")
        else:
            for index in own:
                reviewed[index] = ToolResult(
                    results[index].call_id, FINAL_ANSWER, error=ToolError(_NOT_YET), attempts=1
                )
        return reviewed

    def _end(self, problem: str) -> None:
        self._problem, self.is_over = problem, True

    def explain(self, result: ToolResult) -> Message:
        """Return the message that sends a wrong answer back to the model."""
        how = f"by calling the tool `{FINAL_ANSWER}`" if self._mode == "tool" else "with JSON that matches the schema"
        return Message("user", f"{result.text}\nCorrect every problem, and answer again {how}.")

    def report(self, finish: str) -> Answer[Any]:
        """Return the answer for the reply of a run."""
        problem = self._problem
        if not self.is_over:
            wrong = "" if self._error is None else f". The last answer was wrong: {self._error.message}"
            problem = f"the run ended with finish={finish!r} after {self.attempts} answers{wrong}"
        if problem:
            return Answer(self._mode, self.attempts, problem, cause=self._error)
        call_id, text = self._accepted
        return Answer(self._mode, self.attempts, "", text, self._values[call_id])


class AnswerReader:
    """Reader of an answer that is being written, from the events of one model turn."""

    def __init__(self, kind: AnswerType) -> None:
        self._kind = kind
        self._call_id: str | None = None
        """ID of the call that is the answer, or None if the answer is text so far."""
        self._text = ""
        self._next_length = 0
        self._last: Any = {}

    def read(self, event: ModelEvent) -> AnswerProgress | None:
        """Return the progress that an event makes, or None."""
        if isinstance(event, CallOpened) and event.name == FINAL_ANSWER and self._call_id is None:
            # What was written before the call is not a part of the answer.
            self._call_id, self._text, self._next_length = event.id, "", 0
        if not isinstance(event, TextDelta | ArgumentsDelta):
            return None
        if self._call_id != (event.id if isinstance(event, ArgumentsDelta) else None):
            return None
        self._text += event.text
        if len(self._text) < self._next_length:
            return None
        # Reading takes time in proportion to the length, so a long answer is read less often.
        self._next_length = len(self._text) + len(self._text) // 16
        data = read_partial(self._kind, self._text)
        if data is MISSING or data == self._last:
            return None
        self._last = data
        return AnswerProgress(data)


def read_partial(kind: AnswerType, text: str) -> Any:
    """Return the values of incomplete JSON, or MISSING if there are none or one of them is not valid."""
    if text.replace("\\\\", "").replace('\\"', "").count('"') % 2 == 0:
        text = _NUMBER_END.sub("", text)  # the next piece may continue the number
    try:
        data = parse_json(text, allow_partial="trailing-strings")
    except ValueError:
        return MISSING
    try:
        kind.validate_json(to_json(data), strict=True)
    except ValueError as error:
        details = get_details(error)
        if details is None or not _may_become_valid(data, details):
            return MISSING
    return data.get(_KEY, MISSING) if kind.is_wrapped else data


def _may_become_valid(data: Any, details: Sequence[Any]) -> bool:
    """Return True if all errors are missing values, or those of a union with a branch that has no other errors."""
    branches: dict[tuple[Any, ...], dict[Any, bool]] = {}
    for item in details:
        is_missing = item["type"] == "missing"
        path, branch = _follow(data, item["loc"][:-1] if is_missing else item["loc"])
        errors_by_branch = branches.setdefault(path, {})
        errors_by_branch[branch] = errors_by_branch.get(branch, True) and is_missing
    return all(any(errors_by_branch.values()) for errors_by_branch in branches.values())


def _follow(data: Any, steps: Sequence[Any]) -> tuple[tuple[Any, ...], Any]:
    """Return the steps that lead to a value, and the first step that names a branch of a union, or None."""
    for index, step in enumerate(steps):
        if not (isinstance(data, dict) and step in data) and not (isinstance(data, list) and isinstance(step, int)):
            return tuple(steps[:index]), step
        data = data[step]
    return tuple(steps), None
