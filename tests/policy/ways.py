"""The ways of calling of the table in `test_one_way.py`, and what holds in each of its columns."""

import asyncio
import itertools
import json
import sys
import types
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from click.testing import CliRunner

from policy import one_way
from policy.one_way import DETAIL, TENANT, Policy, Work
from toolmason import Allow, Chat, McpServer, Toolbox, ToolCall, ToolResult
from toolmason.chat import CallFinished, CallProgress, Done
from toolmason.cli.main import cli
from toolmason.errors import ApprovalRequired, ToolCallError
from toolmason.testing import ScriptedModel

# --- ways of calling -----------------------------------------------------------------------------


@dataclass
class Outcome:
    """The end of a call, whatever carried it."""

    text: str
    ok: bool
    result: ToolResult | None = None


@dataclass
class Request:
    """The calls of a cell, and the means to follow and to cancel them."""

    work: Work
    calls: list[ToolCall]
    one_by_one: bool = False
    progress: list[float] = field(default_factory=list)
    cancel: Callable[[], None] | None = None
    """Cancels the calls otherwise than by cancelling the task that waits for them."""

    @property
    def box(self) -> Toolbox:
        return self.work.box

    def on_progress(self, report: Any) -> None:
        self.progress.append(report.done)

    async def each(self, call: Callable[[ToolCall], Awaitable[Outcome]]) -> list[Outcome]:
        """Make the calls at once, or one after the other."""
        if self.one_by_one:
            return [await call(item) for item in self.calls]
        return list(await asyncio.gather(*map(call, self.calls)))

    def make_chat(self) -> Chat:
        turns = [[item] for item in self.calls] if self.one_by_one else [self.calls]
        chat = Chat(ScriptedModel([*turns, "Done."]), self.box)
        self.cancel = chat.cancel
        return chat


NUMBERS = itertools.count()


def make_request(policy: Policy, work: Work) -> Request:
    arguments = [{**call, **work.more} for call in policy.calls]
    if policy.name == "retry":
        # A server outside of the test remembers the keys of earlier calls.
        arguments = [{**call, "key": f"key {next(NUMBERS)}"} for call in arguments]
    calls = [ToolCall(f"call {number}", work.name, call) for number, call in enumerate(arguments)]
    return Request(work, calls, policy.one_by_one)


def from_result(result: ToolResult) -> Outcome:
    return Outcome(result.text, result.ok, result)


async def _call(request: Request) -> list[Outcome]:
    async def call(item: ToolCall) -> Outcome:
        return from_result(await request.box.call(item, on_progress=request.on_progress))

    return await request.each(call)


async def _call_all(request: Request) -> list[Outcome]:
    batches = [[item] for item in request.calls] if request.one_by_one else [request.calls]
    found = [await request.box.call_all(batch, on_progress=request.on_progress) for batch in batches]
    return [from_result(result) for batch in found for result in batch]


async def _run(request: Request) -> list[Outcome]:
    with request.box.run() as run:
        request.cancel = run.cancel

        async def call(item: ToolCall) -> Outcome:
            return from_result(await run.call(item, on_progress=request.on_progress))

        return await request.each(call)


async def _send(request: Request) -> list[Outcome]:
    reply = await request.make_chat().send("Work.")
    return [from_result(result) for result in reply.results]


async def _stream(request: Request) -> list[Outcome]:
    found: list[Outcome] = []
    async for event in request.make_chat().stream("Work."):
        if isinstance(event, CallProgress):
            request.on_progress(event.progress)
        if isinstance(event, CallFinished):
            found.append(from_result(event.result))
        assert not isinstance(event, Done) or event.reply.finish in ("stop", "cancelled", "limit")
    return found


async def _resume(request: Request) -> list[Outcome]:
    box = request.box

    async def call(item: ToolCall) -> Outcome:
        result = await box.call(item)
        if isinstance(result.error, ApprovalRequired):
            decision = box.approvals.decide(result.error.request, Allow())
            result = await box.approvals.resume(decision, on_progress=request.on_progress)
        return from_result(result)

    return await request.each(call)


async def _resume_chat(request: Request) -> list[Outcome]:
    chat = request.make_chat()
    reply = await chat.send("Work.")
    while reply.pending:
        decisions = [request.box.approvals.decide(item, Allow()) for item in reply.pending]
        reply = await chat.resume(reply, decisions)
    return [from_result(result) for result in reply.results]


async def _gateway(request: Request) -> list[Outcome]:
    async with Toolbox(McpServer.of("gateway", request.box)) as front:
        return await ask(front, request)


async def ask(front: Toolbox, request: Request) -> list[Outcome]:
    """Ask a toolbox for tools, prompts or resources."""

    async def ask_one(item: ToolCall) -> Outcome:
        arguments: Any = item.arguments
        if request.work.kind == "tool":
            return from_result(await front.call(item, on_progress=request.on_progress))
        try:
            if request.work.kind == "prompt":
                (message,) = await front.prompt(item.name, arguments)
                return Outcome(message.text, ok=True)
            (content,) = await front.read(f"work://{arguments['how']}/{arguments['key']}")
            return Outcome(str(getattr(content, "text", "")), ok=True)
        except (ToolCallError, ValueError) as error:
            return Outcome(str(error), ok=False)

    return await request.each(ask_one)


async def _command_line(request: Request) -> list[Outcome]:
    target = types.ModuleType("one_way_target")
    target.box = request.box  # type: ignore[attr-defined]
    sys.modules[target.__name__] = target

    def run(item: ToolCall) -> Outcome:
        arguments = json.dumps(item.arguments)
        found = CliRunner().invoke(cli, ["call", "one_way_target:box", item.name, "--json", arguments, "--json"])
        if not found.stdout:
            return Outcome(found.stderr, ok=False)
        data = json.loads(found.stdout)
        return Outcome(data["text"], data["ok"])

    return [await asyncio.to_thread(run, item) for item in request.calls]


WAYS: dict[str, Callable[[Request], Awaitable[list[Outcome]]]] = {
    "call": _call,
    "call_all": _call_all,
    "run": _run,
    "Chat.send": _send,
    "stream": _stream,
    "resume": _resume,
    "Chat.resume": _resume_chat,
    "gateway": _gateway,
    "command line": _command_line,
}
"""Ways that need no server outside of the test; `served stdio` and `served HTTP` are added below."""

# --- columns: what holds ---------------------------------------------------------------------------


def _spans(outcomes: list[Outcome]) -> list[tuple[float, float]]:
    return sorted((float(started), float(ended)) for started, ended in (item.text.split() for item in outcomes))


def _ends_at_the_time_out(outcomes: list[Outcome], request: Request) -> None:
    assert not outcomes[0].ok
    # A served prompt, and a sign-in that ends, do not tell a client why.
    is_tool = request.work.kind == "tool" and not outcomes[0].text.startswith(
        ("Error: ", '{"error":{"code":"unknown_tool"')
    )
    assert not is_tool or "timeout" in outcomes[0].text or "did not finish" in outcomes[0].text


def _is_tried_again(outcomes: list[Outcome], request: Request) -> None:
    assert outcomes[0].text.startswith("answered key")


def _is_denied(outcomes: list[Outcome], request: Request) -> None:
    assert not outcomes[0].ok
    assert "not today" in outcomes[0].text


def _hides_the_message(outcomes: list[Outcome], request: Request) -> None:
    assert not outcomes[0].ok
    assert DETAIL not in outcomes[0].text


def _runs_once(outcomes: list[Outcome], request: Request) -> None:
    assert sorted(item.ok for item in outcomes) == [False, True]
    refused = next(item for item in outcomes if not item.ok)
    assert "max_calls of 1" in refused.text or "rate of 1" in refused.text


def _never_overlap(outcomes: list[Outcome], request: Request) -> None:
    assert all(item.ok for item in outcomes)
    assert len(outcomes) == len(request.calls)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(_spans(outcomes)))


def _is_changed_by_the_hook(outcomes: list[Outcome], request: Request) -> None:
    assert outcomes[0].text == "answered hooked"


def _has_the_context(outcomes: list[Outcome], request: Request) -> None:
    assert outcomes[0].text == TENANT or TENANT in one_way.TOKENS


def _is_reported(outcomes: list[Outcome], request: Request) -> None:
    assert request.progress == [1.0]


def _is_truncated(outcomes: list[Outcome], request: Request) -> None:
    assert outcomes[0].ok
    assert len(outcomes[0].text) < 4096


def is_recorded(outcomes: list[Outcome], request: Request, log: str) -> None:
    """Each call is logged. In a run, results are recorded as well, so that a call that repeats itself is refused."""
    ran = [item for item in outcomes if item.ok and "made before" not in item.text]
    assert log.count("work [") >= len(ran) >= 2
    for call, outcome in zip(request.calls, outcomes, strict=True):
        if outcome.result is not None:
            assert (outcome.result.call_id, outcome.result.name) == (call.id, call.name)
            assert outcome not in ran or outcome.result.duration > 0


def is_refused_at_last(outcomes: list[Outcome]) -> None:
    assert [item.ok for item in outcomes] == [True, True, True, False]
    assert "identical calls" in outcomes[-1].text


CHECKS: dict[str, Callable[[list[Outcome], Request], None]] = {
    "timeout": _ends_at_the_time_out,
    "retry": _is_tried_again,
    "approval": _is_denied,
    "redaction": _hides_the_message,
    "max_calls": _runs_once,
    "max_concurrency": _never_overlap,
    "lock": _never_overlap,
    "rate": _runs_once,
    "hook": _is_changed_by_the_hook,
    "context": _has_the_context,
    "progress": _is_reported,
    "result_cap": _is_truncated,
}
