"""The rows and columns of the table in `test_one_way.py`: everything that runs, and every policy.

One function does the work of every row; its argument `how` says how it behaves. It stands at the top level, so that a
worker process and a served process can import it.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from policy.samples import Thought
from toolmason import (
    Deny,
    McpServer,
    Rate,
    Retry,
    Tool,
    Toolbox,
    ToolContext,
    ToolDefinition,
    ToolOptions,
    prompt,
    resource,
    serve,
)
from toolmason._core.define.tool import LazyTool
from toolmason.extend import EngineSettings, StaticResolver

BOUND = 5.0
"""Seconds after which a test that waits has failed."""
OVERLAP = 0.01
"""Seconds that a call takes whose overlap with others is measured."""
DETAIL = "row 4711"
TENANT = "acme"
SHORT = 0.05
"""The time-out of the column `timeout`."""

ENTERED = threading.Event()
"""Set when something began to hang."""
LEFT = threading.Event()
"""Set when something that hung was cancelled."""
RELEASE = threading.Event()
"""Ends a sync function that hangs, after the test."""
TOKENS: list[str] = []
"""Answers of the row `auth`, which a tool's result does not show."""
_attempts: Counter[str] = Counter()


def start_afresh() -> None:
    """Forget earlier calls."""
    _attempts.clear()
    TOKENS.clear()
    RELEASE.clear()
    ENTERED.clear()
    LEFT.clear()


# --- the work ------------------------------------------------------------------------------------


def _do(how: str, key: str, context: ToolContext | None) -> str:
    """Do the part of the work that takes no time."""
    if how == "fail":
        raise ValueError(f"{DETAIL} is locked")
    if how == "flaky":
        _attempts[key] += 1
        if _attempts[key] < 3 and (context is None or context.attempt < 3):
            raise ConnectionError("reset by peer")
    if how == "flood":
        return "x" * 50_000
    if how == "report" and context is not None:
        context.progress(1, 2, "half")
    if how == "context" and context is not None:
        return str(context.get("tenant", "nobody"))
    return f"answered {key}"


async def work_async(how: str, key: str = "a", *, context: ToolContext | None = None) -> str:
    """Do the work on the loop."""
    if how == "hang":
        ENTERED.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            LEFT.set()
            raise
    if how == "overlap":
        started = time.monotonic()
        await asyncio.sleep(OVERLAP)
        return f"{started} {time.monotonic()}"
    return _do(how, key, context)


def work_sync(how: str, key: str = "a", *, context: ToolContext | None = None) -> str:
    """Do the work in a thread or a process."""
    if how == "hang":
        ENTERED.set()
        while not RELEASE.wait(0.005):
            if context is not None and context.cancelled:
                LEFT.set()
                break
    if how == "overlap":
        started = time.monotonic()
        threading.Event().wait(OVERLAP)
        return f"{started} {time.monotonic()}"
    return _do(how, key, context)


async def plain_async(how: str, key: str = "a") -> str:
    """Work."""
    return await work_async(how, key)


def plain_sync(how: str, key: str = "a") -> str:
    """Work."""
    return work_sync(how, key)


async def context_async(how: str, ctx: ToolContext, key: str = "a") -> str:
    """Work."""
    return await work_async(how, key, context=ctx)


def context_sync(how: str, ctx: ToolContext, key: str = "a") -> str:
    """Work."""
    return work_sync(how, key, context=ctx)


async def handle(arguments: dict[str, Any], context: ToolContext) -> str:
    return await work_async(**arguments, context=context)


SCHEMA = {
    "type": "object",
    "properties": {"how": {"type": "string"}, "key": {"type": "string"}},
    "required": ["how"],
}


class WorkTool(Tool):
    """A tool by hand."""

    def __init__(self, **options: Any) -> None:
        self.definition = ToolDefinition("work", "Work.", SCHEMA)
        self.options = ToolOptions(**options)

    async def invoke(self, arguments: dict[str, Any], context: ToolContext) -> str:
        return await work_async(**arguments, context=context)


# --- columns: every policy -----------------------------------------------------------------------


async def add_mark(call: Any, following: Any) -> Any:
    """Change an argument, so that the answer shows that the hook ran."""
    return await following(replace(call, arguments={**call.arguments, "key": "hooked"}))


def deny(request: Any) -> Deny:
    return Deny("not today")


@dataclass(frozen=True)
class Policy:
    """A column: the options that set the policy, and the calls that show whether it holds."""

    name: str
    calls: tuple[Mapping[str, str], ...]
    box: Mapping[str, Any] = field(default_factory=dict)
    """Options of the toolbox."""
    tool: Mapping[str, Any] = field(default_factory=dict)
    """Options of the tool."""
    hooks: tuple[Any, ...] = ()
    needs_context: bool = False
    one_by_one: bool = False

    def make_box(self, *sources: Any, **options: Any) -> Toolbox:
        """Return a toolbox under this policy."""
        box = Toolbox(*sources, **{**self.box, **options})
        for hook in self.hooks:
            box.use(hook)
        return box


def _calls(how: str, *keys: str) -> tuple[Mapping[str, str], ...]:
    return tuple({"how": how, "key": key} for key in keys or ("a",))


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("timeout", _calls("hang"), {"timeout": SHORT}),
        Policy("retry", _calls("flaky"), {"retry": Retry(3, delay=0)}, {"idempotent": True}),
        Policy("approval", _calls("answer"), {"approve": "all", "approver": deny}),
        Policy("redaction", _calls("fail"), {"on_error": "redact"}),
        Policy("max_calls", _calls("answer", "a", "b"), {}, {"max_calls": 1}),
        Policy("max_concurrency", _calls("overlap", "a", "b", "c"), {"max_concurrency": 1}),
        Policy("lock", _calls("overlap", "a", "a"), {}, {"lock": "key"}),
        Policy("rate", _calls("answer", "a", "b"), {}, {"rate": Rate(1, per=1000)}),
        Policy("hook", _calls("answer"), hooks=(add_mark,)),
        Policy("context", _calls("context"), {"context": {"tenant": TENANT}}, needs_context=True),
        Policy("cancel", _calls("hang"), needs_context=True),
        Policy("progress", _calls("report"), needs_context=True),
        Policy("result_cap", _calls("flood"), {"settings": EngineSettings(result_bytes=2048)}),
        Policy("record", _calls("answer", "a", "a", "a", "a"), one_by_one=True),
    )
}


# --- rows: everything that runs --------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """A toolbox of a row, and how the row's work is asked for."""

    box: Toolbox
    name: str = "work"
    kind: str = "tool"
    more: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of every call besides `how` and `key`."""


def _tool(policy: Policy, *, is_async: bool, **options: Any) -> Tool:
    functions = {(True, True): context_async, (True, False): plain_async}
    functions |= {(False, True): context_sync, (False, False): plain_sync}
    needs_context = options.pop("needs_context", policy.needs_context)
    return Tool.from_function(functions[is_async, needs_context], name="work", **{**policy.tool, **options})


def _sync(policy: Policy, **options: Any) -> Work:
    return Work(policy.make_box(_tool(policy, is_async=False), **options))


def _async(policy: Policy, **options: Any) -> Work:
    return Work(policy.make_box(_tool(policy, is_async=True), **options))


def _thread(policy: Policy, **options: Any) -> Work:
    return Work(policy.make_box(_tool(policy, is_async=False, runs_on="thread", needs_context=True), **options))


def _loop(policy: Policy, **options: Any) -> Work:
    return Work(policy.make_box(_tool(policy, is_async=False, runs_on="loop"), **options))


def _process(policy: Policy, **options: Any) -> Work:
    return Work(policy.make_box(_tool(policy, is_async=False, runs_on="process", needs_context=True), **options))


def _schema(policy: Policy, **options: Any) -> Work:
    made = Tool.from_schema(name="work", description="Work.", input_schema=SCHEMA, handler=handle, **policy.tool)
    return Work(policy.make_box(made, **options))


def _subclass(policy: Policy, **options: Any) -> Work:
    return Work(policy.make_box(WorkTool(**policy.tool), **options))


def _augmented(policy: Policy, **options: Any) -> Work:
    box = policy.make_box(_tool(policy, is_async=True), **options).augmented(Thought)
    return Work(box, more={"thought": "so"})


def _in_memory(policy: Policy, **options: Any) -> Work:
    served = Toolbox(_tool(policy, is_async=True))
    return Work(policy.make_box(McpServer.of("memory", served), **options))


def _nested(policy: Policy, **options: Any) -> Work:
    # What the way of calling needs, such as pending approvals, is a matter of the called toolbox.
    return Work(Toolbox(policy.make_box(_tool(policy, is_async=True)), **options))


def _lazy(policy: Policy, **options: Any) -> Work:
    made = _tool(policy, is_async=True)
    return Work(policy.make_box(LazyTool(made.definition, made.options, "a manifest", lambda: made), **options))


def _resolved(policy: Policy, **options: Any) -> Work:
    resolver = StaticResolver(_tool(policy, is_async=True))
    return Work(policy.make_box(resolvers=[resolver], resolution_fallback=True, **options))


def _prompt(policy: Policy, **options: Any) -> Work:
    @prompt(name="work")
    def made(how: str, ctx: ToolContext, key: str = "a") -> str:
        return work_sync(how, key, context=ctx)

    return Work(policy.make_box(made, **options), kind="prompt")


def _resource(policy: Policy, **options: Any) -> Work:
    @resource("work://{how}/{key}")
    def made(how: str, ctx: ToolContext, key: str = "a") -> str:
        return work_sync(how, key, context=ctx)

    return Work(policy.make_box(made, **options), kind="resource")


async def always(how: str, key: str = "a") -> str:
    """Work, without any trouble of its own."""
    return f"answered {key}"


def _bounded(policy: Policy) -> dict[str, Any]:
    """Return the setting that bounds the wait for a person, which no time-out of a call does."""
    return {"settings": EngineSettings(max_timeout=SHORT)} if policy.name == "timeout" else {}


def _approver(policy: Policy, **options: Any) -> Work:
    async def approve(request: Any) -> bool:
        await work_async(request.arguments["how"], request.arguments["key"])
        return True

    made = Tool.from_function(always, name="work", **policy.tool)
    return Work(policy.make_box(made, **{**options, **_bounded(policy), "approve": "all", "approver": approve}))


def _hook(policy: Policy, **options: Any) -> Work:
    async def run_before(call: Any, following: Any) -> Any:
        await work_async(call.arguments["how"], call.arguments["key"])
        return await following(call)

    made = Tool.from_function(always, name="work", **policy.tool)
    box = policy.make_box(made, **options, **_bounded(policy))
    box.use(run_before)
    return Work(box)


def _auth(policy: Policy, **options: Any) -> Work:
    how = policy.calls[0]["how"]

    def sign_in(context: ToolContext) -> str:
        TOKENS.append(work_sync(how, context=context))
        return TOKENS[-1]

    server = McpServer.of(
        "memory",
        Toolbox(Tool.from_function(always, name="work")),
        auth=sign_in,
        connect_timeout=SHORT if policy.name == "timeout" else BOUND,
    )
    return Work(policy.make_box(server, **options))


def make_remote(shared: Toolbox) -> Callable[..., Work]:
    """Return the row of a server that serves `make_served_box()`, given a toolbox that is connected to it."""

    def make(policy: Policy, **options: Any) -> Work:
        name = f"bare_{policy.name}_work"
        return Work(policy.make_box(shared.select(name), **options), name)

    return make


ROWS: dict[str, Callable[..., Work]] = {
    "sync": _sync,
    "async": _async,
    "thread": _thread,
    "process": _process,
    "loop": _loop,
    "schema tool": _schema,
    "subclass": _subclass,
    "augmented": _augmented,
    "in-memory server": _in_memory,
    "nested toolbox": _nested,
    "lazily loaded": _lazy,
    "resolver-made": _resolved,
    "prompt": _prompt,
    "resource": _resource,
    "approver": _approver,
    "hook": _hook,
    "auth": _auth,
}
"""Rows that need no server outside of the test; `remote stdio` and `remote HTTP` are added there."""


def make_served_box() -> Toolbox:
    """Return one toolbox with a tool for each column, each under its own policy, and each without that of a toolbox."""
    return Toolbox(
        *[_async(policy).box.prefixed(f"{policy.name}_") for policy in POLICIES.values()],
        *[Toolbox(_tool(policy, is_async=True)).prefixed(f"bare_{policy.name}_") for policy in POLICIES.values()],
    )


if __name__ == "__main__":
    serve(make_served_box())
