"""What each toolbox adds to a tool is answered, counted and timed by that toolbox."""

import asyncio
from typing import Any

import pytest

from policy.one_way import BOUND, SHORT
from policy.samples import noting
from toolmason import Allow, Chat, Deny, Param, Rate, Tool, Toolbox, tool
from toolmason.errors import ApprovalRequired
from toolmason.extend import EngineSettings
from toolmason.testing import ScriptedModel


@tool
async def ping() -> str:
    """Answer."""
    return "ok"


@tool
async def slow() -> str:
    """Take longer than any time-out here."""
    await asyncio.sleep(BOUND)
    return "late"


def allow(request: Any) -> Any:
    return Allow()


def refuse(request: Any) -> Any:
    return Deny("the outer toolbox says no")


# --- approval ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [True, lambda arguments, context: True])
async def test_the_rule_of_an_override_is_answered_by_the_approver_of_its_toolbox(rule: Any):
    inner = Toolbox(noting(ran := []), approver=allow)
    outer = Toolbox(inner, approver=refuse).override("delete", approval=rule)

    result = await outer.call("delete", {"path": "a"})

    assert result.error is not None
    assert (result.error.code, ran) == ("approval_denied", [])
    assert (await outer.approvals.dry_run("delete", {"path": "a"})).needs_approval
    assert not (await Toolbox(inner).approvals.dry_run("delete", {"path": "a"})).needs_approval


async def test_the_rule_of_an_override_is_answered_by_the_approver_of_a_chat():
    inner = Toolbox(noting(ran := []), approver=allow)
    model = ScriptedModel([[("delete", {"path": "a"})], "Done."])

    await Chat(model, Toolbox(inner).override("delete", approval=True), approver=refuse).send("Go.")

    assert ran == []


@pytest.mark.parametrize(("amount", "asked"), [(5, []), (50, ["app"]), (500, ["library", "app"])])
@pytest.mark.parametrize("renames", [False, True])
async def test_each_rule_asks_the_approver_of_its_own_toolbox(amount: int, asked: list[str], renames: bool):
    def pay(amount: int) -> str:
        """Pay."""
        return str(amount)

    def note(name: str) -> Any:
        return lambda request: seen.append(name) or Allow()

    seen: list[str] = []
    own = Tool.from_function(pay, approval=lambda arguments, context: arguments["amount"] > 100)
    changes: dict[str, Any] = {"arguments": {"amount": Param(name="euros")}} if renames else {}
    box = Toolbox(Toolbox(own, approver=note("library")), approver=note("app")).override(
        "pay", approval=lambda arguments, context: arguments["amount"] > 10, **changes
    )

    result = await box.call("pay", {"euros" if renames else "amount": amount})

    assert (result.text, seen) == (str(amount), asked)


# --- resolvers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("approver", [refuse, None])
async def test_a_toolbox_as_a_resolver_keeps_its_policy(approver: Any):
    guarded = Toolbox(noting(ran := []), approve="all", approver=approver)

    result = await Toolbox(resolvers=[guarded]).call("delete", {"path": "a"})

    assert result.error is not None
    assert isinstance(result.error, ApprovalRequired) is (approver is None)
    assert ran == []


async def test_a_toolbox_without_its_policy_is_a_resolver_without_it():
    guarded = Toolbox(noting(ran := []), approve="all", approver=refuse)

    result = await Toolbox(resolvers=[guarded.without_policy()]).call("delete", {"path": "a"})

    assert (result.ok, ran) == (True, ["a"])


# --- time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outer", [{}, {"timeout": 30}, {"settings": EngineSettings(call_timeout=30)}])
@pytest.mark.parametrize("options", [{}, {"timeout": 30}])
async def test_the_time_setting_of_an_inner_toolbox_holds(outer: dict[str, Any], options: dict[str, Any]):
    inner = Toolbox(slow, settings=EngineSettings(call_timeout=SHORT))

    result = await asyncio.wait_for(Toolbox(inner, **outer).call("slow", **options), BOUND)

    assert result.error is not None
    assert result.error.code == "timeout"


async def test_the_time_setting_of_an_outer_toolbox_holds_as_well():
    inner = Toolbox(slow, settings=EngineSettings(call_timeout=30))

    result = await Toolbox(inner, settings=EngineSettings(call_timeout=SHORT)).call("slow")

    assert result.error is not None
    assert result.error.code == "timeout"


async def test_the_time_for_approval_of_an_inner_toolbox_holds():
    async def think(request: Any) -> Any:
        await asyncio.sleep(BOUND)
        return Allow()

    settings = EngineSettings(approval_seconds=SHORT)
    inner = Toolbox(noting(ran := []), approve="all", approver=think, settings=settings)

    result = await asyncio.wait_for(Toolbox(inner).call("delete", {"path": "a"}), BOUND)

    assert result.error is not None
    assert (result.error.code, ran) == ("timeout", [])


# --- limits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"rate": Rate(1, 60)}, {"max_calls": 1}])
async def test_two_toolboxes_count_the_limits_that_they_add_apart(limit: dict[str, Any]):
    library = Toolbox(ping)
    boxes = [Toolbox(library).override("ping", **limit) for _ in range(2)]

    first = [(await box.call("ping")).ok for box in boxes]
    second = [(await box.call("ping")).ok for box in boxes]

    assert (first, second) == ([True, True], [False, False])


async def test_two_toolboxes_have_slots_of_their_own():
    running, most = 0, 0

    @tool
    async def work() -> None:
        """Count the calls that run at once."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    library = Toolbox(work)
    boxes = [Toolbox(library).override("work", max_concurrency=2) for _ in range(2)]

    await asyncio.gather(*(box.call("work") for box in boxes for _ in range(4)))

    assert most == 4


@pytest.mark.parametrize(("limits", "allowed"), [((10, 6), 6), ((2, 3), 2), ((9, 4, 5), 4)], ids=str)
async def test_limits_of_one_toolbox_count_a_call_once(limits: tuple[int, ...], allowed: int):
    @tool(max_calls=limits[0])
    async def ping() -> None:
        """Ping."""

    box = Toolbox(ping)
    for limit in limits[1:]:
        box = box.override("ping", max_calls=limit)

    outcomes = [(await box.call("ping")).ok for _ in range(allowed + 1)]

    assert outcomes == [True] * allowed + [False]


async def test_a_call_that_an_outer_limit_refuses_does_not_count_for_the_inner_one():
    library = Toolbox(ping).override("ping", max_calls=2)
    box = Toolbox(library).override("ping", max_calls=1)

    outcomes = [(await box.call("ping")).ok for _ in range(3)]

    assert outcomes == [True, False, False]
    assert (await library.call("ping")).ok
    assert not (await library.call("ping")).ok
