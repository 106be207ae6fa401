"""`toolmason call [TARGET] NAME key=value …`: call a tool, get a prompt, or read a resource."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import click
from pydantic_core import to_jsonable_python

from toolmason._core.call.approval import Allow
from toolmason._core.define.tool import Tool
from toolmason._core.toolbox.approvals import DryRun
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.content import EmbeddedResource, describe_part, encode_contents
from toolmason._core.values.results import ToolResult
from toolmason._secrets import MASK
from toolmason.cli.approval import ask_approval, mask_secrets
from toolmason.cli.complete import complete_call
from toolmason.cli.main import NOT_FOUND, TOOL_ERROR, USAGE, combine_options, examples
from toolmason.cli.output import print_error, print_json, print_text, progress_bar
from toolmason.cli.targets import describe_error, fail, get_tool, load_toolbox, parse_arguments, split_words
from toolmason.errors import ApprovalRequired, InvalidArguments

call_options = combine_options(
    click.option(
        "--arguments", "documents", multiple=True, metavar="OBJECT", help="JSON object to read arguments from."
    ),
    click.option(
        "--prompt", "is_prompt", is_flag=True, help="Get the prompt of this name, also if a tool has the same one."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON."),
    click.option("--timeout", type=float, metavar="SECONDS", help="Maximum seconds for the call."),
    click.option("--yes", is_flag=True, help="Approve the call without asking."),
    click.option("--dry-run", is_flag=True, help="Print what would run, without running it."),
)
"""Options of a command that calls a tool."""


class CallCommand(click.Command):
    """A command that also accepts `--json OBJECT` for `--arguments OBJECT`, and says how to write arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments of the command."""
        pairs = zip_longest(args, args[1:], fillvalue="")
        words = ["--arguments" if arg == "--json" and after.lstrip().startswith("{") else arg for arg, after in pairs]
        try:
            return super().parse_args(ctx, words)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            name = error.option_name.lstrip("-").replace("-", "_")
            message = f"{error.message} An argument of the tool has no dashes: {name}=VALUE."
            raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from None


@click.command(
    "call",
    cls=CallCommand,
    epilog=examples(
        "call app.py get_weather city=Prague days:=3",
        'call app.py get_weather --arguments \'{"city": "Prague"}\' --json',
        "call app.py drop_table table=orders --dry-run",
        "call app.py greeting name=Ada",
        "call app.py notes://today",
    ),
)
@click.argument("words", nargs=-1, metavar="[TARGET] NAME [ARGUMENTS]...", shell_complete=complete_call)
@call_options
def command(words: tuple[str, ...], **options: Any) -> None:
    """Call the tool NAME of TARGET with key=value, key:=json, or - for JSON on standard input.

    NAME may also be a prompt, or the URI of a resource. If you omit TARGET, it is of an installed plugin.
    """
    target, name, arguments = split_words(words)
    box = load_toolbox(target)
    if target is None and not (box.tools or box.prompts or box.resources):
        fail(f"No target is given, and no plugin is installed. Write: toolmason call FILE.py {name}", NOT_FOUND)
    use_entry(box, name, arguments, options)


def use_entry(box: Toolbox, name: str, words: tuple[str, ...], options: dict[str, Any]) -> None:
    """Call a tool, or else get a prompt, or read a resource; exit with "not found" if there is none of this name."""
    prompt = next((item for item in box.prompts if item.name == name), None)
    if prompt is not None and (options["is_prompt"] or name not in box):
        values = parse_arguments(words, options["documents"], prompt.input_schema)
        _print_prompt(box, name, values, as_json=options["as_json"])
    elif options["is_prompt"]:
        known = ", ".join(item.name for item in box.prompts) or "none"
        fail(f"No prompt named {name!r}. Available: {known}.", NOT_FOUND)
    elif name not in box and ":" in name:
        _print_resource(box, name, as_json=options["as_json"])
    else:
        _run_call(box, get_tool(box, name), words, options)


def _print_prompt(box: Toolbox, name: str, values: dict[str, Any], *, as_json: bool) -> None:
    try:
        messages = box.prompt_sync(name, values)
    except InvalidArguments as error:
        fail(describe_error(error), USAGE)
    if as_json:
        print_json([message.to_dict() for message in messages])
    else:
        for message in messages:
            print_text(f"{message.role}: {message.text}" if len(messages) > 1 else message.text)


def _print_resource(box: Toolbox, uri: str, *, as_json: bool) -> None:
    try:
        found = box.read_sync(uri)
    except KeyError as error:
        fail(str(error), NOT_FOUND)
    if as_json:
        print_json([encode_contents(part) for part in found if isinstance(part, EmbeddedResource)])
    else:
        print_text("\n".join(map(describe_part, found)))


def _run_call(box: Toolbox, tool: Tool, words: tuple[str, ...], options: dict[str, Any]) -> None:
    """Run a call as `call_options` say, print its result, and exit with the matching code."""
    name, as_json, yes = tool.name, options["as_json"], options["yes"]
    values = parse_arguments(words, options["documents"], tool.definition.input_schema)
    if options["dry_run"]:
        _show_plan(box, name, values, as_json=as_json)
        return
    limit: dict[str, Any] = {} if options["timeout"] is None else {"timeout": options["timeout"]}
    with progress_bar() as on_progress:
        result = box.call_sync(name, values, on_progress=on_progress, **limit)
    if isinstance(result.error, ApprovalRequired):
        result = _resume_with_decision(box, result, limit, yes=yes)
    if as_json:
        print_json(_make_entry(result))
    elif result.error is None:
        print_text(result.text)
    else:
        print_error(describe_error(result.error))
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
        print_error(describe_error(plan.error))
        raise click.exceptions.Exit(USAGE)
    arguments, preview = mask_secrets(box, plan.name, plan.arguments, plan.preview)
    if arguments != plan.arguments:
        repairs = tuple(replace(repair, before=MASK, after=MASK) for repair in plan.repairs)
        plan = replace(plan, arguments=arguments, repairs=repairs, preview=preview)
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
