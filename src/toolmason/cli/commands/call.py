"""`toolmason call [TARGET] NAME key=value …`: run one call and print its result."""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import Any

import click
from pydantic_core import to_jsonable_python

from toolmason._core.call.approval import Allow
from toolmason._core.toolbox.approvals import DryRun
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.results import ToolResult
from toolmason.cli.approval import ask_approval
from toolmason.cli.complete import complete_call
from toolmason.cli.main import TOOL_ERROR, USAGE
from toolmason.cli.output import print_error, print_json, print_text, progress_bar
from toolmason.cli.targets import get_tool, load_toolbox, parse_arguments, split_words
from toolmason.errors import ApprovalRequired, InvalidArguments


class _CallCommand(click.Command):
    """A command whose `--json` takes a value only if a JSON object follows."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        pairs = zip_longest(args, args[1:], fillvalue="")
        is_flag_only = [arg == "--json" and not after.lstrip().startswith("{") for arg, after in pairs]
        return super().parse_args(
            ctx, ["--json=" if flag_only else arg for arg, flag_only in zip(args, is_flag_only, strict=True)]
        )


@click.command("call", cls=_CallCommand)
@click.argument("words", nargs=-1, metavar="[TARGET] NAME [ARGUMENTS]...", shell_complete=complete_call)
@click.option(
    "--json",
    "documents",
    multiple=True,
    is_flag=False,
    flag_value="",
    metavar="[OBJECT]",
    help="Without a value: print the whole result as JSON. With an object: read arguments from it.",
)
@click.option("--timeout", type=float, help="Maximum seconds for the call.")
@click.option("--yes", is_flag=True, help="Approve the call without asking.")
@click.option("--dry-run", is_flag=True, help="Print what would run, without running it.")
def command(
    words: tuple[str, ...], documents: tuple[str, ...], timeout: float | None, *, yes: bool, dry_run: bool
) -> None:
    """Call the tool NAME of TARGET with key=value, key:=json, or - for JSON on standard input.

    If you omit TARGET, NAME is a tool of an installed plugin.
    """
    target, name, arguments = split_words(words)
    box = load_toolbox(target)
    tool = get_tool(box, name)
    objects = [text for text in documents if text]
    values = parse_arguments(arguments, objects, tool.definition.input_schema)
    as_json = "" in documents
    if dry_run:
        _show_plan(box, tool.name, values, as_json=as_json)
        return
    options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    run_call(box, tool.name, values, options, as_json=as_json, yes=yes)


def run_call(
    box: Toolbox, name: str, values: dict[str, Any], options: dict[str, Any], *, as_json: bool, yes: bool = False
) -> None:
    """Run a call, print its result, and exit with the matching code."""
    with progress_bar() as on_progress:
        result = box.call_sync(name, values, on_progress=on_progress, **options)
    if isinstance(result.error, ApprovalRequired):
        result = _resume_with_decision(box, result, options, yes=yes)
    if as_json:
        print_json(_make_entry(result))
    elif result.error is None:
        print_text(result.text)
    else:
        print_error(str(result.error))
    if result.error is not None:
        raise click.exceptions.Exit(USAGE if isinstance(result.error, InvalidArguments) else TOOL_ERROR)


def _resume_with_decision(box: Toolbox, result: ToolResult, options: dict[str, Any], *, yes: bool) -> ToolResult:
    """Ask for approval in the terminal, unless `yes`, and resume the call; without an answer it stays rejected."""
    request: Any = getattr(result.error, "request", None)
    verdict = Allow() if yes else ask_approval(box, request)
    if verdict is None:
        return result
    with progress_bar() as on_progress:
        return box.approvals.resume_sync(box.approvals.decide(request, verdict), on_progress=on_progress, **options)


def _show_plan(box: Toolbox, name: str, values: dict[str, Any], *, as_json: bool) -> None:
    plan = box.approvals.dry_run_sync(name, values)
    if plan.error is not None:
        print_error(str(plan.error))
        raise click.exceptions.Exit(USAGE)
    if as_json:
        print_json({**to_jsonable_python(plan, exclude={"error"}), "dry_run": True})
    else:
        print_text("\n".join(_format_plan(plan)))


def _format_plan(plan: DryRun) -> list[str]:
    repairs = [
        f"repaired: {repair.path}: {repair.rule}: {repair.before!r} → {repair.after!r}" for repair in plan.repairs
    ]
    preview = [] if plan.preview is None else [f"preview: {plan.preview}"]
    return [
        f"would run: {plan.name} {json.dumps(dict(plan.arguments), ensure_ascii=False)}",
        *repairs,
        *preview,
        f"approval: {'needed' if plan.needs_approval else 'not needed'}",
    ]


def _make_entry(result: ToolResult) -> dict[str, Any]:
    plain_fields = ("call_id", "name", "ok", "text", "structured", "attempts", "duration")
    return {
        **{name: getattr(result, name) for name in plain_fields},
        "error": None if result.error is None else result.error.to_model()["error"],
        "repairs": to_jsonable_python(result.repairs),
    }
