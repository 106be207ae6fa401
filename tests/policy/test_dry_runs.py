"""A dry run: what a call would do, and nothing of it."""

import pytest

from policy.samples import noting
from toolmason import Allow, Config, McpServer, Toolbox, ToolContext, tool
from toolmason.errors import InvalidArguments, UnknownTool


@pytest.fixture
def ran():
    return []


@pytest.fixture
def box(ran):
    @tool(destructive=True, preview=lambda arguments: f"remove {arguments['path']} ({arguments['times']})")
    def remove(path: str, times: int = 2) -> None:
        ran.append(path)

    @tool(approval=lambda arguments, context: arguments["amount"] > context["allowance"])
    async def pay(amount: int, ctx: ToolContext) -> None:
        ran.append(amount)

    @tool(read_only=True)
    def look() -> None:
        ran.append("look")

    return Toolbox(remove, pay, look, context={"allowance": 10})


async def test_a_dry_run_shows_what_the_tool_would_get_and_runs_nothing(box, ran):
    plan = await box.approvals.dry_run("REMOVE", '{"path": "a", "times": "3"}')

    assert (plan.name, dict(plan.arguments)) == ("remove", {"path": "a", "times": 3})
    assert plan.preview == "remove a (3)"
    assert [repair.path for repair in plan.repairs] == ["$.times"]
    assert ran == []


@pytest.mark.parametrize(
    ("rule", "name", "arguments", "needed"),
    [
        (None, "remove", {"path": "a"}, False),
        ("destructive", "remove", {"path": "a"}, True),
        ("destructive", "look", {}, False),
        ("all", "look", {}, True),
        (None, "pay", {"amount": 5}, False),
        (None, "pay", {"amount": 50}, True),
    ],
)
async def test_a_dry_run_asks_the_gate(box, ran, rule, name, arguments, needed):
    ruled = Toolbox(box, approve=rule, context={"allowance": 10})

    assert (await ruled.approvals.dry_run(name, arguments)).needs_approval is needed
    assert ran == []


async def test_a_dry_run_in_a_run_follows_the_rule_of_the_run(box):
    with box.run() as run:
        assert (await run.approvals.dry_run("remove", {"path": "a"})).needs_approval


async def test_a_dry_run_takes_the_context_of_the_call(box):
    plan = await box.approvals.dry_run("pay", {"amount": 50}, context={"allowance": 100})

    assert not plan.needs_approval


def test_a_dry_run_works_from_code_that_is_not_async(box):
    assert box.approvals.dry_run_sync("look").arguments == {}


async def test_a_dry_run_of_what_does_not_fit_returns_the_error_of_the_call(box):
    unfit = await box.approvals.dry_run("remove", {"times": "many"})
    unknown = await box.approvals.dry_run("remov")

    assert (unfit.name, type(unfit.error)) == ("remove", InvalidArguments)
    assert (unknown.name, type(unknown.error)) == ("remov", UnknownTool)


async def test_a_dry_run_that_agrees_with_the_call_uses_up_nothing():
    @tool(max_calls=1, approval=False)
    def once() -> str:
        return "ran"

    box = Toolbox(once, config=Config(environ={}))

    await box.approvals.dry_run("once")

    assert (await box.call("once")).text == "ran"


async def test_a_call_that_is_resumed_reports_progress_and_keeps_its_time_limit():
    reports = []

    @tool(approval=True)
    async def work(ctx: ToolContext, forever: bool = False) -> str:
        await ctx.progress(1, 2, "half")
        if forever:
            import asyncio

            await asyncio.Event().wait()
        return "done"

    from toolmason import Allow

    box = Toolbox(work)
    quick, long = await box.call_all([("work", {}), ("work", {"forever": True})])

    done = await box.approvals.resume(box.approvals.decide(quick.error.request, Allow()), on_progress=reports.append)
    late = await box.approvals.resume(box.approvals.decide(long.error.request, Allow()), timeout=0.05)

    assert done.text == "done"
    assert [report.message for report in reports] == ["half"]
    assert late.error.code == "timeout"


@pytest.mark.parametrize("how", ["dry_run", "resume"])
async def test_a_tool_of_a_server_that_was_not_listed_yet_is_found(how):
    def make_box():
        server = McpServer.of("memory", Toolbox(noting([])))
        return Toolbox(server, approve="all", approval_key="a secret of the application")

    async with make_box() as first:
        pending = await first.call("delete", {"path": "a"})
        decision = first.approvals.decide(pending.error.request, Allow())
    later = make_box()

    if how == "dry_run":
        assert (await later.approvals.dry_run("delete", {"path": "a"})).name == "delete"
    else:
        assert (await later.approvals.resume(decision)).ok
