"""A tool that comes from a manifest is treated as one that was introspected: the gate, the limits, the clock."""

import importlib
import re
from dataclasses import replace

import pytest

from core.shop import forget
from toolmason import Allow, Deny, Toolbox
from toolmason.build.manifest.package_manifest import build, write_file

HEAD = """
from toolmason import Rate, Retry, ToolContext, ToolError, tool

calls = []


def ask(arguments, context):
    return arguments["n"] > 0


def shout(value, kind):
    return str(value).upper()


def soften(error):
    return "softened"
"""

CASES = {
    "plain": ("", "return n"),
    "approval": ("approval=True", "return n"),
    "approval by a predicate": ("approval=ask", "return n"),
    "approval with a preview": ("approval=True, preview=lambda arguments: 'would do it'", "return n"),
    "destructive": ("destructive=True", "return n"),
    "read-only": ("read_only=True", "return n"),
    "skips permission": ("destructive=True, skip_permission=True", "return n"),
    "max_calls": ("max_calls=1", "return n"),
    "rate": ("rate=Rate(1, per=1000)", "return n"),
    "max_concurrency": ("max_concurrency=1", "return n"),
    "lock": ("lock='n'", "return n"),
    "retry": ("retry=Retry(attempts=3, delay=0, on=(KeyError,))", "calls.append(n)\n    raise KeyError(len(calls))"),
    "retry for an error of its own": (
        "retry=Retry(attempts=2, delay=0, on=(ToolError,))",
        "calls.append(n)\n    raise ToolError('again', retryable=True)",
    ),
    "timeout": ("timeout=0.05, runs_on='loop'", "import asyncio\n    await asyncio.Event().wait()"),
    "no timeout": ("timeout=None", "return n"),
    "endless timeout": ("timeout=float('inf')", "return n"),
    "return_direct": ("return_direct=True", "return n"),
    "converter": ("converter=shout", "return f'x{n}'"),
    "redacted": ("on_error='redact'", "raise ValueError('secret')"),
    "an error policy that is code": ("on_error=soften", "raise ValueError('secret')"),
    "strict": ("strict_types=True", "return n"),
    "extra": ("extra='forbid'", "return n"),
    "thread": ("runs_on='thread'", "return n"),
    "substituted": ("substitute_result=True", "return 'n is ${n}'"),
    "cut": ("max_result_bytes=256", "return 'x' * 1000"),
    "repeats": ("repeats='allow'", "return n"),
    "recorded": ("record='shape'", "return n"),
    "background": ("background=True", "return n"),
    "a ticket after a while": ("ticket_after=5", "return n"),
    "meta and tags": ("meta={'a': {1, 2}}, tags=['x']", "return n"),
    "a tool's own error": ("", "raise ToolError('no', data=5)"),
}
"""The options of a tool, and its body."""


def seen(result):
    error = None if result.error is None else (type(result.error).__name__, result.error.code, result.error.retryable)
    # Handles and error ids are new each time.
    text = "cut" if "handle" in result.meta else re.sub(r"[0-9a-f]{8,}", "ID", result.text)
    return result.ok, text, error, result.structured, result.return_direct, result.attempts, result.repairs


async def everything(box):
    """Return what a user can see of the calls of one toolbox."""
    sent = ({"n": 1}, {"n": "1"}, {"n": 1, "more": 2}, {}, "{", {"n": 0})
    found = [seen(await box.call("work", arguments)) for arguments in sent]
    with box.run() as run:
        found.extend([seen(await run.call("work", {"n": 1})) for _ in range(3)])
    [batch] = await box.call_all([("work", {"n": 1})])
    return [*found, seen(batch)]


@pytest.mark.parametrize(
    "approver", [None, lambda request: Deny("no"), lambda request: Allow()], ids=["-", "no", "yes"]
)
@pytest.mark.parametrize("case", CASES)
async def test_every_policy_holds_as_after_introspection(make_package, case, approver):
    options, body = CASES[case]
    kind = "async def" if "await" in body else "def"
    make_package(work=f"{HEAD}\n@tool({options})\n{kind} work(n: int):\n    '''Work.'''\n    {body}\n")
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")
    listed = await everything(Toolbox.from_manifest("shop", approver=approver))
    forget("shop")

    introspected = await everything(Toolbox(importlib.import_module("shop.work"), approver=approver))

    assert listed == introspected


@pytest.mark.parametrize("rule", ["destructive", "writes", "all", None])
async def test_the_rule_of_the_toolbox_holds_for_listed_tools(shop, rule):
    box = Toolbox.from_manifest("shop", approve=rule)

    codes = {
        name: getattr((await box.call(name, arguments)).error, "code", None)
        for name, arguments in {"find": {"text": "a"}, "drop": {"order": "a"}, "count": {}}.items()
    }

    asked = {"destructive": {"drop"}, "writes": {"drop", "count"}, "all": {"drop", "count", "find"}, None: set()}[rule]
    assert {name for name, code in codes.items() if code == "approval_required"} == asked


async def test_a_decision_on_a_listed_tool_can_be_taken_in_another_process(shop):
    key = "a-key-of-sixteen-bytes"
    first = Toolbox.from_manifest("shop", approve="all", approval_key=key)
    request = (await first.call("drop", {"order": "7"})).error.request
    decision = first.approvals.decide(request, Allow())
    forget("shop")

    result = await Toolbox.from_manifest("shop", approve="all", approval_key=key).approvals.resume(decision)

    assert result.value == "dropped 7"


async def test_limits_are_shared_by_the_views_of_a_listed_tool(make_package):
    make_package(work=f"{HEAD}\n@tool(max_calls=2)\ndef work(n: int) -> int:\n    return n\n")
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")
    box = Toolbox.from_manifest("shop")

    results = [
        await box.call("work", {"n": 1}),
        await box.prefixed("a_").call("a_work", {"n": 1}),
        await box.renamed({"work": "toil"}).call("toil", {"n": 1}),
    ]

    assert [result.ok for result in results] == [True, True, False]
    assert results[2].error.code == "limit_exceeded"


def test_options_that_are_code_can_be_asked_before_the_tool_is_called(make_package):
    make_package(work=f"{HEAD}\n@tool(approval=ask)\ndef work(n: int) -> int:\n    return n\n")
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")

    options = Toolbox.from_manifest("shop")["work"].options

    assert options.approval({"n": 1}, None) is True
    assert options.approval({"n": 0}, None) is False


def test_listed_options_are_those_of_the_tool(make_package):
    make_package(
        work=f"{HEAD}\n@tool(timeout=3, retry=Retry(attempts=2), rate=Rate(2, per=5), tags=['x'], lock='n'"
        ", sequential=True, meta={'a': [1]}, runs_on='thread', on_error='redact', max_result_bytes=300)\n"
        "def work(n: int) -> int: ...\n"
    )
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")

    listed = Toolbox.from_manifest("shop")["work"].options

    assert listed == replace(importlib.import_module("shop.work").work.__tool__.options)
