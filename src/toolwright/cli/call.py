"""`toolwright call TARGET NAME key=value …`: run one call and print its result."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from pydantic_core import to_jsonable_python

from toolwright._core.approve import Allow, ApprovalRequest, Deny
from toolwright._core.toolbox import Toolbox
from toolwright._core.values import ToolResult
from toolwright.cli.main import NOT_FOUND, TOOL_ERROR, USAGE
from toolwright.cli.target import arguments_from, fail, toolbox_at
from toolwright.errors import ApprovalRequired, InvalidArguments, UnknownTool


class _Call(click.Command):
    """A command whose `--json` takes a value only where one follows that is a JSON object."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        following = [*args[1:], ""]
        alone = [
            arg == "--json" and not after.lstrip().startswith("{") for arg, after in zip(args, following, strict=True)
        ]
        return super().parse_args(ctx, ["--json=" if bare else arg for arg, bare in zip(args, alone, strict=True)])


@click.command("call", cls=_Call)
@click.argument("target")
@click.argument("name")
@click.argument("arguments", nargs=-1)
@click.option(
    "--json",
    "documents",
    multiple=True,
    is_flag=False,
    flag_value="",
    metavar="[OBJECT]",
    help="Alone: print the whole result as JSON. With an object: take the arguments from it.",
)
@click.option("--timeout", type=float, help="Seconds the call may take.")
@click.option("--yes", is_flag=True, help="Approve the call without asking.")
def command(
    target: str, name: str, arguments: tuple[str, ...], documents: tuple[str, ...], timeout: float | None, *, yes: bool
) -> None:
    """Call the tool NAME of TARGET with key=value, key:=json, or - for JSON on standard input."""
    box = toolbox_at(target)
    if name not in box:
        fail(str(UnknownTool(name, [tool.name for tool in box])), NOT_FOUND)
    objects = [text for text in documents if text]
    given = arguments_from(arguments, objects, box[name].definition.input_schema)
    options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    result = box.call_sync(name, given, **options)
    if isinstance(result.error, ApprovalRequired):
        result = _decided(box, result, result.error.request, yes=yes)
    if "" in documents:
        click.echo(json.dumps(_entry(result), indent=2))
    elif result.error is None:
        click.echo(result.text)
    else:
        click.echo(f"Error: {result.error}", err=True)
    if result.error is not None:
        raise click.exceptions.Exit(USAGE if isinstance(result.error, InvalidArguments) else TOOL_ERROR)


def _decided(box: Toolbox, result: ToolResult, request: ApprovalRequest, *, yes: bool) -> ToolResult:
    """Ask for approval in the terminal; without one, and without --yes, the call stays refused."""
    if not yes and not sys.stdin.isatty():
        click.echo("This call needs approval. Run it in a terminal, or with --yes.", err=True)
        return result
    shown = request.preview or f"{request.tool} {json.dumps(dict(request.arguments))}"
    allowed = yes or click.confirm(f"{shown}\nAllow this call?", err=True)
    return box.resume_sync(box.decide(request, Allow() if allowed else Deny("refused in the terminal")))


def _entry(result: ToolResult) -> dict[str, Any]:
    return {
        "call_id": result.call_id,
        "name": result.name,
        "ok": result.ok,
        "text": result.text,
        "structured": result.structured,
        "error": None if result.error is None else result.error.to_model()["error"],
        "repairs": to_jsonable_python(result.repairs),
        "attempts": result.attempts,
        "duration": result.duration,
    }
