"""1,000 random batches: a call that was denied, or that nobody decided about, never runs, whatever is around it."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.samples import AT_ONCE, Thought
from toolmason import Allow, Deny, Edit, Parallel, Sequential, Tool, Toolbox, ToolCall, ToolContext
from toolmason._core.call.approval import MAX_EDIT_ROUNDS

SMALL = st.integers(0, 9)
NOT_GIVEN = "not given"


def over_five(arguments, context):
    return arguments["n"] > 5


async def over_five_async(arguments, context):
    await asyncio.sleep(0)
    return arguments["n"] > 5


def broken(arguments, context):
    raise LookupError


APPROVALS = {"never": False, "always": True, "over five": over_five, "over five, async": over_five_async}
APPROVALS["broken"] = broken
NONSENSE = [None, 1, "yes", Allow, object()]


@dataclass(frozen=True)
class Shape:
    """One tool of a batch: what it says about itself, and whether its first attempt fails."""

    effects: dict[str, bool]
    approval: str
    skips: bool
    fails_first: bool


@dataclass(frozen=True)
class Plan:
    """One batch: tools, the toolbox's rule, what an approver says to each number, calls, and the way they go."""

    shapes: list[Shape]
    rule: str | None
    verdicts: dict[int, Any] | None
    calls: list[tuple[int, int, bool]]
    way: str
    in_a_run: bool
    strategy: Any


SHAPES = st.builds(
    Shape,
    effects=st.sampled_from([{}, {"read_only": True}, {"idempotent": True}, {"destructive": True}]),
    approval=st.sampled_from(list(APPROVALS)),
    skips=st.booleans(),
    fails_first=st.booleans(),
)
VERDICTS = st.one_of(
    st.just(Allow()),
    st.just(Deny("no")),
    st.builds(lambda n: Edit({"n": n}), SMALL),
    st.just(Edit({"n": "many"})),
    st.just(Edit({})),
    st.sampled_from(NONSENSE),
    st.just(RuntimeError("out of order")),
)
PLANS = st.builds(
    Plan,
    shapes=st.lists(SHAPES, min_size=1, max_size=3),
    rule=st.sampled_from([NOT_GIVEN, "destructive", "writes", "all", None]),
    verdicts=st.none() | st.fixed_dictionaries(dict.fromkeys(range(10), VERDICTS)),
    calls=st.lists(st.tuples(st.integers(0, 2), SMALL, st.booleans()), max_size=6),
    way=st.sampled_from(["plain", "prefixed", "augmented", "joined", "middleware", "middleware, twice"]),
    in_a_run=st.booleans(),
    strategy=st.sampled_from([Parallel(), Parallel(2), Sequential()]),
)


def expected(plan, shape, n):
    """Return the number that a call runs with, or `None` where it must not run. Written from the page, not the code."""
    for _ in range(MAX_EDIT_ROUNDS):
        rule = plan.rule
        if rule == NOT_GIVEN:
            rule = "destructive" if plan.in_a_run else None
        by_rule = {
            None: False,
            "destructive": "destructive" in shape.effects,
            "writes": "read_only" not in shape.effects,
            "all": True,
        }[rule]
        own = shape.approval in ("always", "broken") or (shape.approval.startswith("over") and n > 5)
        if not (own or (by_rule and not shape.skips)):
            return n
        verdict = None if plan.verdicts is None else plan.verdicts[n]
        if isinstance(verdict, Allow):
            return n
        if not isinstance(verdict, Edit) or not isinstance(verdict.arguments.get("n"), int):
            return None
        if verdict.arguments["n"] == n:
            return n
        n = verdict.arguments["n"]
    return None


def tool_for(number, shape, ran):
    async def work(n: int, ctx: ToolContext) -> str:
        ran.append((ctx.call_id, n))
        await asyncio.sleep(0)
        if shape.fails_first and ctx.attempt == 1:
            raise ConnectionError
        return str(n)

    return Tool.from_function(
        work,
        name=f"work_{number}",
        approval=APPROVALS[shape.approval],
        skip_permission=shape.skips,
        retry=AT_ONCE,
        repeats="allow",
        **shape.effects,
    )


def view_for(plan, ran):
    def approver(request):
        verdict = plan.verdicts[request.arguments["n"]]
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    async def passing(call, following):
        if plan.way == "middleware, twice":
            await following(call)
        return await following(call)

    words = {} if plan.rule == NOT_GIVEN else {"approve": plan.rule}
    tools = [tool_for(number, shape, ran) for number, shape in enumerate(plan.shapes)]
    box = Toolbox(*tools, approver=None if plan.verdicts is None else approver, **words)
    if plan.way.startswith("middleware"):
        box.use(passing)
    views = {
        "prefixed": lambda: box.prefixed("x_"),
        "augmented": lambda: box.augmented(Thought),
        "joined": lambda: box | Toolbox(),
    }
    view = views.get(plan.way, lambda: box)()
    return view.run() if plan.in_a_run else view


def calls_of(plan):
    """Return the calls of a plan, and the number that each may run with."""
    prefix = "x_" if plan.way == "prefixed" else ""
    calls, allowed = [], {}
    for index, (tool, n, as_json) in enumerate(plan.calls):
        number = tool % len(plan.shapes)
        arguments = {"n": n}
        # An edit gives the whole of the arguments, so under an augmented view one without the thought does not fit.
        extra = {"thought": "so"} if plan.way == "augmented" else {}
        text = f'{{"n": {n}, "thought": "so"}}' if extra else f'{{"n": {n}}}'
        name = f"{prefix}work_{number}"
        calls.append(ToolCall(str(index), name, text if as_json else {**arguments, **extra}))
        found = expected(plan, plan.shapes[number], n)
        allowed[str(index)] = found
    return calls, allowed


@pytest.mark.slow
@settings(max_examples=10 * settings.default.max_examples)  # 1,000 under `make cover`
@given(plan=PLANS)
def test_a_call_that_was_denied_or_not_decided_never_runs(plan):
    ran: list[tuple[str, int]] = []
    calls, allowed = calls_of(plan)

    results = asyncio.run(view_for(plan, ran).call_all(calls, strategy=plan.strategy))

    assert [result.call_id for result in results] == [call.id for call in calls]
    edits = plan.way == "augmented" and any(isinstance(v, Edit) for v in (plan.verdicts or {}).values())
    for result in results:
        numbers = {n for call_id, n in ran if call_id == result.call_id}
        assert numbers <= {allowed[result.call_id]}, f"{result} ran with {numbers}"
        assert result.ok is bool(numbers)
        if not edits:
            assert numbers == {allowed[result.call_id]} - {None}
