"""Ask for approval of a call in the terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from toolmason._core.call.approval import Allow, ApprovalRequest, ApprovalVerdict, Deny, Edit
from toolmason._core.define.schema_nodes import find_secret_names
from toolmason._core.define.tool import get_root
from toolmason._core.run.call_log import mask_fields, select_secrets
from toolmason._core.toolbox.approvals import format_arguments
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.remembered_decisions import Remember
from toolmason._core.values.results import Arguments
from toolmason._secrets import MASK, mask_values
from toolmason._text import escape_hidden
from toolmason.cli.output import echo, print_error
from toolmason.cli.targets import describe_error, parse_object
from toolmason.errors import ConfigError

_NO_NAME: Final = "(?!)"
"""Pattern that matches nothing: a name such as `key` hides nothing that a user decides on."""


def ask_approval(box: Toolbox, request: ApprovalRequest) -> ApprovalVerdict | None:
    """Ask about a call until there is an answer; return None without a terminal."""
    box = find_box(box, request.delegates)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        echo(_format_request(box, request, dict(request.arguments), request.preview), err=True)
        echo("This call needs approval. Run it in a terminal, or with --yes.", err=True)
        return None
    arguments, preview = dict(request.arguments), request.preview
    question = "Allow this call? [y/n/edit/always]"
    while True:
        echo(_format_request(box, request, arguments, preview), err=True)
        answer = _read_line(question).strip().lower()
        if answer == "always" and request.reason:
            _trust_tool(box, request.tool)
            answer = "y"
        if answer in ("y", "yes", "always"):
            remember: Remember | None = "tool" if answer == "always" else None
            return Allow(remember) if arguments == dict(request.arguments) else Edit(arguments)
        if answer in ("n", "no"):
            return Deny("refused in the terminal")
        if answer not in ("e", "edit"):
            echo("Answer y to allow it, n to refuse it, or edit to change its arguments.", err=True)
            effect = "to add the tool to the lock file" if request.reason else "not to be asked about this tool again"
            echo(f"Answer always to allow it, and {effect}.", err=True)
            continue
        try:
            edited = _edit_arguments(arguments)
            plan = box.approvals.dry_run_sync(request.tool, edited)
        except (TypeError, ValueError, click.UsageError) as error:
            print_error(str(error))
            continue
        if plan.error is not None:
            print_error(describe_error(plan.error))
            continue
        arguments, preview = dict(plan.arguments), plan.preview


def _read_line(question: str) -> str:
    """Ask for a line on standard error; standard output is for the result."""
    if sys.stdout.isatty():
        answer: str = click.prompt(question, prompt_suffix=" ", err=True)
        return answer
    # `click.prompt` would write a blank to standard output, which may be redirected to a file.
    echo(f"{question} ", nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def find_box(box: Toolbox, chats: Iterable[str]) -> Toolbox:
    """Return the toolbox of the innermost of the chats that lead to a call, by their names as tools."""
    for name in chats:
        chat: Any = getattr(get_root(box[name]), "chat", None) if name in box else None
        box = box if chat is None else chat.box  # a program of the model calls the tools of the same toolbox
    return box


def mask_secrets(box: Toolbox, tool: str, arguments: Arguments, preview: str | None) -> tuple[Any, str | None]:
    """Return arguments and a preview to print, without the values that have a secret type."""
    schema = box[tool].definition.input_schema if tool in box else {}
    secrets, names = select_secrets(schema, arguments, _NO_NAME)["secret"], find_secret_names(schema)
    # Text is damaged JSON, whose fields have no known end.
    shown = MASK if names and isinstance(arguments, str) else mask_fields(arguments, names, _NO_NAME)
    return shown, None if preview is None else mask_values(preview, secrets)


def _format_request(box: Toolbox, request: ApprovalRequest, arguments: dict[str, Any], preview: str | None) -> str:
    arguments, preview = mask_secrets(box, request.tool, arguments, preview)
    effects = f" ({', '.join(effect.replace('_', '-') for effect in request.effects)})" if request.effects else ""
    call = f"{request.tool}{effects} {format_arguments(arguments)}"
    if request.reason:
        call = f"{call}\n{request.reason}"
    return call if preview is None else f"{call}\n{escape_hidden(preview)}"


def _trust_tool(box: Toolbox, name: str) -> None:
    """Add the definition of a server's tool to the lock file, and trust it from now on."""
    from toolmason.build.compare.lock_file import FILE, approve, listings_of, load_if_exists, write  # noqa: PLC0415 - rare

    tool: Any = get_root(box[name])
    servers = [source.server for source in get_state(box).remotes.sources if source.name == tool.server]
    path = Path(next((server.lock for server in servers if server.lock is not None), FILE))
    try:
        locked = load_if_exists(path)
        # Under the server's own name of the tool, as `toolmason lock --approve` writes it.
        found = {**locked.get_tools(tool.server), **listings_of([tool])}
        write(approve(locked, found, server=tool.server), path)
    except ConfigError as error:
        print_error(str(error))
        return
    tool.distrust = ""
    echo(f"Locked {tool.name} of server {tool.server} in {path}.", err=True)


def _edit_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Let the user edit the arguments in `$EDITOR`, or on the next line if no editor is set."""
    if os.environ.get("VISUAL") or os.environ.get("EDITOR"):
        text = click.edit(json.dumps(arguments, indent=2, ensure_ascii=False), extension=".json")
        if text is None:
            return arguments
    else:
        text = _read_line("Arguments, as a JSON object:")
    return parse_object(text)
