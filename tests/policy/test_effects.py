"""What a tool says about its effects, and what follows: the table of docs/reference/effects.md, made from the code."""

import pytest

from house.source import ROOT
from policy.samples import AT_ONCE, Work, noting
from toolmason import Tool, Toolbox
from toolmason.errors import ApprovalRequired

PAGE = ROOT / "docs" / "reference" / "effects.md"
ROWS = [
    {},
    {"read_only": True},
    {"idempotent": True},
    {"read_only": True, "idempotent": True},
    {"open_world": True},
    {"destructive": True},
    {"destructive": True, "idempotent": True},
    {"destructive": True, "sequential": False},
    {"destructive": True, "skip_permission": True},
]
NOT_GIVEN = "not given"
RULES = [NOT_GIVEN, "destructive", "writes", "all", None]
HEAD = [
    "Effects",
    "toolbox's `retry=`",
    "alone in a batch",
    "call, no `approve=`",
    "run, no `approve=`",
    '`"destructive"`',
    '`"writes"`',
    '`"all"`',
    "`None`",
]


async def is_tried_again(effects):
    runs = []

    async def flaky() -> str:
        runs.append(1)
        if len(runs) == 1:
            raise ConnectionError
        return "done"

    await Toolbox(Tool.from_function(flaky, **effects), retry=AT_ONCE).call("flaky")
    return len(runs) == 2


async def runs_alone(effects):
    work = Work()

    results = await Toolbox(work.tool(**effects)).call_all([("work", None)] * 3)

    assert all(result.ok for result in results)
    return work.peak == 1


async def is_asked(effects, rule, *, in_a_run=False):
    ran = []
    words = {} if rule is NOT_GIVEN else {"approve": rule}
    box = Toolbox(noting(ran, **effects), **words)

    result = await (box.run() if in_a_run else box).call("delete", {"path": "a"})

    assert isinstance(result.error, ApprovalRequired) is not bool(ran)
    return not ran


async def row_of(effects):
    answers = [
        await is_tried_again(effects),
        await runs_alone(effects),
        await is_asked(effects, NOT_GIVEN),
        await is_asked(effects, NOT_GIVEN, in_a_run=True),
        *[await is_asked(effects, rule) for rule in RULES[1:]],
    ]
    said = ", ".join(f"`{name}`" if value else f"`{name}=False`" for name, value in effects.items())
    first, second, *asked = answers
    cells = ["again" if first else "once", "alone" if second else "beside others"]
    return [said or "nothing", *cells, *["asks" if answer else "runs" for answer in asked]]


async def table():
    rows = [HEAD, ["---"] * len(HEAD), *[await row_of(effects) for effects in ROWS]]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


async def test_the_table_of_the_page_is_what_the_code_does():
    generated = await table()

    shown = "\n".join(line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|"))
    assert shown == generated, f"{PAGE.name} should hold:\n{generated}"


def test_the_page_shows_code_in_its_first_five_lines():
    assert any(line.startswith("```python") for line in PAGE.read_text("utf-8").splitlines()[:5])


# --- the rules, by hand ---------------------------------------------------------------------------


def asked(result):
    return isinstance(result.error, ApprovalRequired)


EFFECTS = {
    "nothing said": {},
    "read only": {"read_only": True},
    "idempotent": {"idempotent": True},
    "destructive": {"destructive": True},
    "destructive, skips": {"destructive": True, "skip_permission": True},
    "asks itself": {"read_only": True, "approval": True},
    "asks itself, skips": {"skip_permission": True, "approval": True},
}
ALWAYS = {"asks itself", "asks itself, skips"}
WRITES = {"nothing said", "idempotent", "destructive"}
ASKED = {
    "destructive": {"destructive"} | ALWAYS,
    "writes": WRITES | ALWAYS,
    "all": WRITES | {"read only"} | ALWAYS,
    None: ALWAYS,
}


@pytest.mark.parametrize("in_a_run", [False, True], ids=["call", "run"])
@pytest.mark.parametrize("effects", EFFECTS)
@pytest.mark.parametrize("rule", ASKED, ids=str)
async def test_a_rule_that_is_given_holds_for_calls_and_runs(rule, effects, in_a_run):
    ran = []
    box = Toolbox(noting(ran, **EFFECTS[effects]), approve=rule)

    result = await (box.run() if in_a_run else box).call("delete", {"path": "a"})

    assert asked(result) is (effects in ASKED[rule])
    assert ran == ([] if asked(result) else ["a"])


@pytest.mark.parametrize("effects", EFFECTS)
async def test_without_a_rule_a_run_asks_for_what_destroys_and_a_call_does_not(effects):
    box = Toolbox(noting([], **EFFECTS[effects]))

    call, run = await box.call("delete", {"path": "a"}), await box.run().call("delete", {"path": "a"})

    assert asked(call) is (effects in ALWAYS)
    assert asked(run) is (effects in {"destructive"} | ALWAYS)
