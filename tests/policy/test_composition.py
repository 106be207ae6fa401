"""Policy travels with the tool: through every composition, and by the rules where several toolboxes have a word."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from policy import one_way
from policy.one_way import BOUND, POLICIES, ROWS, SHORT, Work
from policy.samples import Door, Thought, noting
from policy.ways import CHECKS, WAYS, Outcome, Request, ask, from_result, make_request
from toolmason import (
    Allow,
    Chat,
    Deny,
    Edit,
    Inject,
    Limits,
    McpServer,
    ProjectDir,
    Rate,
    Retry,
    Tool,
    Toolbox,
    ToolContext,
    resource,
    tool,
)
from toolmason._core.define.tool import LazyTool
from toolmason.errors import ApprovalRequired, ToolTimeout
from toolmason.extend import EngineSettings, StaticResolver
from toolmason.testing import ScriptedModel


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    one_way.start_afresh()
    yield
    one_way.RELEASE.set()


# --- every composition keeps every policy ------------------------------------------------------------

COMPOSITIONS: dict[str, Callable[[Work], Work]] = {
    "in a toolbox": lambda work: Work(Toolbox(work.box)),
    "in a toolbox in a toolbox": lambda work: Work(Toolbox(Toolbox(work.box))),
    "right of |": lambda work: Work(Toolbox() | work.box),
    "left of |": lambda work: Work(Toolbox(work.box | Toolbox())),
    "prefixed": lambda work: Work(Toolbox(work.box.prefixed("a_")), "a_work"),
    "prefixed outside": lambda work: Work(Toolbox(work.box).prefixed("a_"), "a_work"),
    "select": lambda work: Work(Toolbox(work.box.select("w*"))),
    "exclude": lambda work: Work(Toolbox(work.box.exclude("x*"))),
    "renamed": lambda work: Work(Toolbox(work.box.renamed({"work": "other"})), "other"),
    "augmented": lambda work: Work(Toolbox(work.box.augmented(Thought)), more={"thought": "so"}),
    "augmented outside": lambda work: Work(Toolbox(work.box).augmented(Thought), more={"thought": "so"}),
    "augmented between": lambda work: Work(Toolbox(Toolbox(work.box).augmented(Thought)), more={"thought": "so"}),
    "view of a run": lambda work: Work(Toolbox(work.box).run()),
    "with_policy": lambda work: Work(Toolbox(work.box).with_policy(context={"other": 1})),
    "by a resolver": lambda work: Work(Toolbox(resolvers=[StaticResolver(work.box)])),
    "by a name": lambda work: Work(Toolbox("work", resolvers=[StaticResolver(work.box)])),
    "behind a server": lambda work: Work(Toolbox(McpServer.of("behind", Toolbox(work.box)))),
}
"""A toolbox with a policy → one without, which holds the same tool."""
KINDS = ("async", "sync", "lazily loaded", "in-memory server")
LISTED = [policy for policy in POLICIES if policy not in ("cancel", "record")]
NOT_FOR_SERVERS = ("redaction", "context", "retry")
"""Columns that a server's tool does not show; see `DOES_NOT_APPLY` in test_one_way.py."""


def _cases() -> Iterator[Any]:
    for kind in KINDS:
        for composition in COMPOSITIONS:
            if kind == "in-memory server" and composition.startswith("by a"):
                continue  # a resolver lists local tools only
            for policy in LISTED:
                if kind == "in-memory server" and policy in (*NOT_FOR_SERVERS, "result_cap"):
                    continue
                yield pytest.param(kind, composition, policy)


@pytest.mark.parametrize(("kind", "composition", "policy"), [*_cases()])
async def test_a_composition_keeps_the_policy(kind: str, composition: str, policy: str):
    made = COMPOSITIONS[composition](ROWS[kind](POLICIES[policy]))
    request = make_request(POLICIES[policy], made)

    outcomes = await asyncio.wait_for(WAYS["call"](request), BOUND)

    CHECKS[policy](outcomes, request)


def _say(**options: Any) -> Callable[[Request], Any]:
    async def send(request: Request) -> list[Outcome]:
        given = {name: make(request.box) for name, make in options.items()}
        tools = given.pop("chat", ())
        chat = Chat(ScriptedModel([request.calls, "Done."]), tools)
        return [from_result(result) for result in (await chat.send("Work.", **given)).results]

    return send


CHATS: dict[str, Callable[[Request], Any]] = {
    "Chat(m, box)": _say(chat=lambda box: box),
    "Chat(m, [box])": _say(chat=lambda box: [box]),
    "Chat(m, [box.prefixed])": _say(chat=lambda box: [box.prefixed("")]),
    "send(tools=box)": _say(tools=lambda box: box),
    "send(tools=[box])": _say(tools=lambda box: [box]),
    "send(add_tools=box)": _say(add_tools=lambda box: box),
    "send(add_tools=[box])": _say(add_tools=lambda box: [box, Toolbox()]),
    "send(tools=[tool])": _say(chat=lambda box: [box], tools=lambda box: ["work"]),
}


@pytest.mark.parametrize("policy", [policy for policy in LISTED if policy != "progress"])
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("kind", ["async", "lazily loaded"])
async def test_a_chat_keeps_the_policy_of_a_toolbox_it_is_given(kind: str, chat: str, policy: str):
    request = make_request(POLICIES[policy], ROWS[kind](POLICIES[policy]))

    outcomes = await asyncio.wait_for(CHATS[chat](request), BOUND)

    CHECKS[policy](outcomes, request)


@pytest.mark.parametrize("policy", [policy for policy in LISTED if policy != "progress"])
@pytest.mark.parametrize("option", ["tools", "add_tools"])
async def test_a_bare_tool_of_one_request_runs_under_the_policy_of_the_chat(option: str, policy: str):
    column = POLICIES[policy]
    function = one_way.context_async if column.needs_context else one_way.plain_async
    request = make_request(column, Work(column.make_box()))
    chat = Chat(ScriptedModel([request.calls, "Done."]), request.box)

    given: Any = {option: [Tool.from_function(function, name="work", **column.tool)]}
    reply = await chat.send("Work.", **given)

    CHECKS[policy]([from_result(result) for result in reply.results], request)


# --- the rules: approval -----------------------------------------------------------------------------


def approver(asked: list[str], name: str, verdict: Any = None) -> Callable[[Any], Any]:
    def approve(request: Any) -> Any:
        asked.append(name)
        return Allow() if verdict is None else verdict

    return approve


async def test_both_approvers_are_asked_and_the_innermost_first():
    asked: list[str] = []
    inner = Toolbox(noting(ran := []), approve="all", approver=approver(asked, "inner"))
    outer = Toolbox(inner, approve="all", approver=approver(asked, "outer"))

    result = await outer.call("delete", {"path": "a"})

    assert (result.ok, asked, ran) == (True, ["inner", "outer"], ["a"])


@pytest.mark.parametrize("who", ["inner", "outer"])
async def test_one_denial_is_enough(who: str):
    asked: list[str] = []
    verdicts = {who: Deny("no")}
    inner = Toolbox(noting(ran := []), approve="all", approver=approver(asked, "inner", verdicts.get("inner")))
    outer = Toolbox(inner, approve="all", approver=approver(asked, "outer", verdicts.get("outer")))

    result = await outer.call("delete", {"path": "a"})

    assert result.error is not None
    assert (result.error.code, ran) == ("approval_denied", [])


async def test_the_same_approver_is_asked_once():
    asked: list[str] = []
    same = approver(asked, "same")
    inner = Toolbox(noting([], approval=True), approve="all", approver=same)

    result = await Toolbox(inner, approve="all", approver=same).call("delete", {"path": "a"})

    assert (result.ok, asked) == (True, ["same"])


async def test_a_rule_without_an_approver_is_answered_by_the_next_one_outside():
    asked: list[str] = []
    inner = Toolbox(noting([]), approve="all")
    between = Toolbox(inner)

    result = await Toolbox(between, approver=approver(asked, "outer")).call("delete", {"path": "a"})

    assert (result.ok, asked) == (True, ["outer"])


async def test_the_own_rule_of_a_tool_is_answered_by_the_approver_of_its_toolbox():
    asked: list[str] = []
    inner = Toolbox(noting([], approval=True), approver=approver(asked, "inner"))

    result = await Toolbox(inner, approver=approver(asked, "outer")).call("delete", {"path": "a"})

    assert (result.ok, asked) == (True, ["inner"])


async def test_a_rule_that_no_toolbox_answers_is_answered_by_the_chat():
    asked: list[str] = []
    inner = Toolbox(noting(ran := []), approve="all")
    chat = Chat(ScriptedModel([[("delete", {"path": "a"})], "Done."]), [inner], approver=approver(asked, "chat"))

    await chat.send("Go.")

    assert (asked, ran) == (["chat"], ["a"])


@pytest.mark.parametrize(
    "tools",
    [
        pytest.param(lambda box: [box], id="[box]"),
        pytest.param(lambda box: box, id="box"),
    ],
)
async def test_the_approver_of_a_chat_does_not_replace_that_of_a_toolbox(tools: Any):
    asked: list[str] = []
    inner = Toolbox(noting(ran := []), approve="all", approver=approver(asked, "inner", Deny("no")))
    model = ScriptedModel([[("delete", {"path": "a"})], "Done."])

    await Chat(model, tools(inner), approver=approver(asked, "chat")).send("Go.")

    assert (asked, ran) == (["inner"], [])


async def test_a_rule_that_nobody_answers_leaves_the_call_pending_until_the_outer_toolbox_decides():
    outer = Toolbox(Toolbox(noting(ran := []), approve="all"))

    pending = await outer.call("delete", {"path": "a"})
    assert isinstance(pending.error, ApprovalRequired)
    assert ran == []
    result = await outer.approvals.resume(outer.approvals.decide(pending.error.request, Allow()))

    assert (result.ok, ran) == (True, ["a"])


async def test_a_decision_of_the_outer_toolbox_does_not_overrule_the_approver_of_the_inner_one():
    inner = Toolbox(noting(ran := []), approve="all", approver=lambda request: request.arguments["path"] != "b")
    outer = Toolbox(inner, approve="all")
    pending = await outer.call("delete", {"path": "a"})
    assert isinstance(pending.error, ApprovalRequired)

    decision = outer.approvals.decide(pending.error.request, Edit({"path": "b"}))
    result = await outer.approvals.resume(decision)

    assert result.error is not None
    assert (result.error.code, ran) == ("approval_denied", [])


async def test_arguments_that_an_outer_approver_edits_are_shown_to_the_inner_one_again():
    seen: list[str] = []

    def inner_approver(request: Any) -> bool:
        seen.append(request.arguments["path"])
        return True

    def outer_approver(request: Any) -> Any:
        return Edit({"path": "b"}) if request.arguments["path"] == "a" else Allow()

    inner = Toolbox(noting(ran := []), approve="all", approver=inner_approver)

    await Toolbox(inner, approve="all", approver=outer_approver).call("delete", {"path": "a"})

    assert (seen, ran) == (["a", "b"], ["b"])


async def test_a_lenient_outer_rule_does_not_lift_the_inner_one():
    inner = Toolbox(noting(ran := []), approve="all", approver=lambda request: False)

    await Toolbox(inner, approve=None).call("delete", {"path": "a"})

    assert ran == []


# --- the rules: time-outs, caps, limits ----------------------------------------------------------------


@pytest.mark.parametrize(("inner", "outer"), [(SHORT, 30), (30, SHORT), (SHORT, None), (None, SHORT)])
async def test_the_stricter_time_out_holds(inner: float | None, outer: float | None):
    box = Toolbox(Toolbox(one_way.plain_async, timeout=inner), timeout=outer)

    result = await asyncio.wait_for(box.call("plain_async", {"how": "hang"}), BOUND)

    assert result.error is not None
    assert result.error.code == "timeout"


async def test_the_time_out_of_a_call_does_not_loosen_that_of_an_inner_toolbox():
    box = Toolbox(Toolbox(one_way.plain_async, timeout=SHORT))

    result = await asyncio.wait_for(box.call("plain_async", {"how": "hang"}, timeout=30), BOUND)

    assert result.error is not None
    assert result.error.code == "timeout"


@pytest.mark.parametrize(("inner", "outer"), [(2048, 100_000), (100_000, 2048), (2048, None), (None, 2048)])
async def test_the_stricter_result_cap_holds(inner: int | None, outer: int | None):
    def settings(size: int | None) -> EngineSettings:
        return EngineSettings() if size is None else EngineSettings(result_bytes=size)

    box = Toolbox(Toolbox(one_way.plain_async, settings=settings(inner)), settings=settings(outer))

    result = await box.call("plain_async", {"how": "flood"})

    assert len(result.text) < 4096


@pytest.mark.parametrize("inner", [EngineSettings(), EngineSettings(result_bytes=2048)], ids=["default", "set"])
async def test_a_cap_that_a_tool_sets_holds_in_another_toolbox_as_in_its_own(inner: EngineSettings):
    async def flood() -> str:
        """Return more than the default allows."""
        return "x" * 300_000

    made = Toolbox(Tool.from_function(flood, max_result_bytes=4_000_000), settings=inner)

    assert len((await made.call("flood")).text) == 300_000
    assert len((await Toolbox(made).call("flood")).text) == 300_000


async def test_a_toolbox_in_two_others_has_one_set_of_counters():
    inner = Toolbox(noting([], max_calls=2), noting([], name="often", rate=Rate(2, per=1000)))
    first, second = Toolbox(inner), Toolbox(inner.prefixed("x_"))

    counted = [await box.call(name, {"path": "a"}) for box, name in ((first, "delete"), (second, "x_delete")) * 2]
    rated = [await box.call(name, {"path": "a"}) for box, name in ((first, "often"), (second, "x_often")) * 2]

    assert [result.ok for result in counted] == [True, True, False, False]
    assert [result.ok for result in rated] == [True, True, False, False]


@pytest.mark.parametrize("options", [{"max_concurrency": 1}, {"lock": "path"}], ids=["max_concurrency", "lock"])
async def test_a_tool_in_two_toolboxes_shares_its_slots(options: dict[str, Any]):
    door = Door()
    inner = Toolbox(door.tool(**options))

    first = asyncio.create_task(Toolbox(inner).call("wait"))
    await asyncio.wait_for(door.entered.wait(), BOUND)
    second = await Toolbox(inner).call("wait", timeout=SHORT)
    door.open.set()

    assert second.error is not None
    assert "slot" in second.error.message
    assert (await first).ok


async def test_the_slots_of_an_inner_toolbox_count_for_all_its_tools():
    door = Door()
    inner = Toolbox(door.tool(), noting([]), max_concurrency=1)

    first = asyncio.create_task(Toolbox(inner).call("wait"))
    await asyncio.wait_for(door.entered.wait(), BOUND)
    second = await Toolbox(inner.select("delete")).call("delete", {"path": "a"}, timeout=SHORT)
    door.open.set()

    assert second.error is not None
    assert second.error.code == "timeout"
    assert (await first).ok


async def test_each_toolbox_has_slots_of_its_own():
    door = Door()
    inner = Toolbox(door.tool(), max_concurrency=2)
    outer = Toolbox(inner, max_concurrency=1)

    first = asyncio.create_task(outer.call("wait"))
    await asyncio.wait_for(door.entered.wait(), BOUND)
    through_outer = await outer.call("wait", timeout=SHORT)
    through_inner = asyncio.create_task(inner.call("wait"))
    door.open.set()

    assert through_outer.error is not None
    assert (await first).ok
    assert (await through_inner).ok


async def test_the_limits_of_a_run_count_tools_of_inner_toolboxes():
    outer = Toolbox(Toolbox(noting([])), Toolbox(noting([], name="other")))

    with outer.run(Limits(calls=1)) as run:
        results = [await run.call(name, {"path": "a"}) for name in ("delete", "other")]

    assert [result.ok for result in results] == [True, False]


# --- the rules: hooks, retry, errors -------------------------------------------------------------------


def hook(seen: list[str], name: str) -> Callable[[Any, Any], Any]:
    async def note(call: Any, following: Any) -> Any:
        seen.append(name)
        return await following(call)

    return note


async def test_hooks_run_outermost_first():
    seen: list[str] = []
    boxes = [Toolbox(noting(seen))]
    boxes.append(Toolbox(boxes[0]))
    boxes.append(Toolbox(boxes[1]))
    for box, name in zip(boxes, ("inner", "between", "outer"), strict=True):
        box.use(hook(seen, name))

    await boxes[-1].call("delete", {"path": "ran"})

    assert seen == ["outer", "between", "inner", "ran"]


async def test_a_hook_that_is_added_later_runs_in_toolboxes_that_exist():
    seen: list[str] = []
    inner = Toolbox(noting(seen))
    outer = Toolbox(inner)
    await outer.call("delete", {"path": "before"})

    inner.use(hook(seen, "hook"))
    await outer.call("delete", {"path": "after"})

    assert seen == ["before", "hook", "after"]


async def test_a_view_does_not_run_a_hook_twice():
    seen: list[str] = []
    inner = Toolbox(noting(seen))
    inner.use(hook(seen, "hook"))

    await (inner | Toolbox(inner.prefixed("x_"))).call("delete", {"path": "one"})
    await (inner | inner.prefixed("x_")).call("x_delete", {"path": "two"})

    assert seen == ["hook", "one", "hook", "two"]


@pytest.mark.parametrize(("inner", "outer", "attempts"), [(2, 5, 2), (None, 3, 3), (4, None, 4)])
async def test_the_innermost_retry_that_was_set_wins(inner: int | None, outer: int | None, attempts: int):
    def retry(count: int | None) -> Retry | None:
        return None if count is None else Retry(count, delay=0)

    @tool(read_only=True)
    async def fail() -> None:
        raise ConnectionError("reset")

    result = await Toolbox(Toolbox(fail, retry=retry(inner)), retry=retry(outer)).call("fail")

    assert result.attempts == attempts


@pytest.mark.parametrize(
    ("inner", "outer", "text"),
    [
        ({"on_error": lambda error: "inner"}, {"on_error": lambda error: "outer"}, "inner"),
        ({}, {"on_error": lambda error: "outer"}, "outer"),
        ({"on_error": "redact"}, {"on_error": "message"}, "internal error"),
        ({"on_error": "message"}, {"on_error": "redact"}, "internal error"),
        ({"on_error": "message"}, {"on_error": lambda error: "outer"}, "row 4711"),
    ],
    ids=["functions", "only outside", "redact inside", "redact outside", "message inside"],
)
async def test_the_innermost_error_policy_wins_and_redaction_over_a_message(inner: Any, outer: Any, text: str):
    result = await Toolbox(Toolbox(one_way.plain_async, **inner), **outer).call("plain_async", {"how": "fail"})

    assert text in result.text


async def test_an_error_policy_that_redacts_holds_for_the_tools_own_policy():
    made = Tool.from_function(one_way.plain_async, on_error="message")

    result = await Toolbox(Toolbox(made, on_error="redact")).call("plain_async", {"how": "fail"})

    assert one_way.DETAIL not in result.text


# --- the rules: context, project directory, config -------------------------------------------------------


async def test_context_values_are_those_of_the_call_then_the_innermost_toolbox_then_outward():
    @tool
    async def show(ctx: ToolContext) -> dict[str, Any]:
        return dict(ctx)

    inner = Toolbox(show, context={"a": "inner", "b": "inner"})
    outer = Toolbox(inner, context={"a": "outer", "b": "outer", "c": "outer", "d": "outer"})

    result = await outer.call("show", context={"a": "call", "d": "call"})

    assert result.value == {"a": "call", "b": "inner", "c": "outer", "d": "call"}


async def test_a_context_of_a_chat_counts_as_that_of_the_call():
    @tool
    async def show(tenant: Annotated[str, Inject("tenant")], user: Annotated[str, Inject("user")]) -> str:
        return f"{tenant} {user}"

    inner = Toolbox(show, context={"tenant": "inner", "user": "inner"})
    chat = Chat(ScriptedModel([[("show", {})], "Done."]), [inner], context={"user": "chat"})

    reply = await chat.send("Go.")

    assert [result.text for result in reply.results] == ["inner chat"]


async def test_an_injected_value_of_an_inner_toolbox_never_comes_from_a_model():
    @tool(extra="allow")
    async def show(tenant: Annotated[str, Inject("tenant")]) -> str:
        return tenant

    result = await Toolbox(Toolbox(show, context={"tenant": "inner"})).call("show", {"tenant": "model"})

    assert result.text != "model"


async def test_each_tool_has_the_project_directory_of_its_innermost_toolbox(tmp_path: Path):
    @tool
    async def where(place: Annotated[Path, ProjectDir]) -> str:
        return place.name

    @tool
    async def where_else(place: Annotated[Path, ProjectDir]) -> str:
        return place.name

    outer = Toolbox(Toolbox(where, project_dir=tmp_path / "inner"), where_else, project_dir=tmp_path / "outer")

    assert (await outer.call("where")).text == "inner"
    assert (await outer.call("where_else")).text == "outer"


async def test_each_tool_has_the_config_of_its_innermost_toolbox():
    @tool
    async def read(ctx: ToolContext) -> str:
        return str(ctx.config.get("example.prefix"))

    inner = Toolbox(read, config={"example.prefix": "inner"})

    assert (await Toolbox(inner, config={"example.prefix": "outer"}).call("read")).text == "inner"
    assert (await Toolbox(Toolbox(read), config={"example.prefix": "outer"}).call("read")).text == "outer"


# --- the way out, and what is not a tool -----------------------------------------------------------------


@pytest.mark.parametrize("policy", ["timeout", "approval", "redaction", "hook", "context", "result_cap"])
async def test_without_policy_leaves_the_policy_behind(policy: str):
    request = make_request(POLICIES[policy], ROWS["async"](POLICIES[policy]))
    how = {"timeout": "answer"}.get(policy, request.calls[0].arguments["how"])  # type: ignore[index, call-overload]

    result = await Toolbox(request.box.without_policy()).call("work", {"how": how})

    with pytest.raises(AssertionError):
        CHECKS[policy]([from_result(result)], request)


async def test_without_policy_keeps_the_policies_further_in():
    inner = Toolbox(noting(ran := []), approve="all", approver=lambda request: False)

    await Toolbox(Toolbox(inner, timeout=30).without_policy()).call("delete", {"path": "a"})

    assert ran == []


@pytest.mark.parametrize("kind", ["prompt", "resource"])
@pytest.mark.parametrize("policy", ["timeout", "max_concurrency", "context"])
async def test_prompts_and_resources_carry_the_policy_of_their_toolbox(kind: str, policy: str):
    work = ROWS[kind](POLICIES[policy])
    request = make_request(POLICIES[policy], Work(Toolbox(Toolbox(work.box)), kind=kind))

    outcomes = await asyncio.wait_for(ask(request.box, request), BOUND)

    CHECKS[policy](outcomes, request)


async def test_a_resource_of_a_server_carries_the_time_out_of_its_toolbox():
    @resource("hang://now")
    async def hang() -> str:
        return await one_way.work_async("hang")

    inner = Toolbox(McpServer.of("memory", Toolbox(hang)), timeout=SHORT)

    with pytest.raises(ToolTimeout):
        await asyncio.wait_for(Toolbox(inner).read("hang://now"), 0.5)


async def test_a_lazy_tool_is_not_loaded_by_being_carried():
    made = noting([])

    def load() -> Tool:
        raise AssertionError("loaded")

    lazy = LazyTool(made.definition, made.options, "a manifest", load)
    outer = Toolbox(Toolbox(Toolbox(lazy, approve="all")).prefixed("x_"))

    assert [item.name for item in outer] == ["x_delete"]
