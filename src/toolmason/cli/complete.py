"""A half-written command line → what may come next: tools, parameters, values.

Lives here: click's protocol for bash, zsh and fish, and bash's habit of splitting words at `:` and `=`.
Completing loads the target, as the command itself would. Not here: the commands.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from typing import Any, Final

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

_BREAKS: Final = re.compile(r"[:=]+")

_BASH: Final = """\
%(complete_func)s() {
    local IFS=$'\\n' line kind value
    COMPREPLY=()
    for line in $(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete $1); do
        kind="${line%%%%,*}" value="${line#*,}"
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            *) COMPREPLY+=("$value"); [[ $value == *= ]] && compopt -o nospace ;;
        esac
    done
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _Bash(BashComplete):
    """Puts words together again that bash split at `:` and `=`."""

    source_template = _BASH
    _cut: str = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        words = split_arg_string(os.environ["COMP_WORDS"])
        place = int(os.environ["COMP_CWORD"])
        words = [*words[:place], words[place] if place < len(words) else ""]
        whole = list(_joined(words))
        *args, incomplete = whole
        if len(whole) != len(words):
            # Bash replaces only what stands after the last break.
            breaks = list(_BREAKS.finditer(incomplete))
            self._cut = incomplete[: breaks[-1].end()] if breaks else ""
        return args[1:], incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        return f"{item.type},{str(item.value).removeprefix(self._cut)}"


def _joined(words: list[str]) -> Iterator[str]:
    whole, glued = "", True
    for word in words:
        is_break = _BREAKS.fullmatch(word) is not None
        if not (glued or is_break):
            yield whole
            whole = ""
        whole, glued = whole + word, is_break
    yield whole


def register() -> None:
    """Take the place of click's own completion for bash."""
    add_completion_class(_Bash)


def complete_list(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete the words of `toolmason list`."""
    if param.name == "target":
        return [CompletionItem(incomplete, type="file")]
    return _tools(ctx.params.get("target"), incomplete)


def complete_call(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete the words of `toolmason call`."""
    del param
    words = tuple(ctx.params.get("words") or ())
    if not words:
        return [*_tools(None, incomplete), CompletionItem(incomplete, type="file")]
    from toolmason.cli.targets import is_target, told_apart  # noqa: PLC0415 - loads the core, for a shell that asks

    if len(words) == 1 and is_target(words[0]):
        return _tools(words[0], incomplete)
    try:
        target, name, given = told_apart(words)
    except click.UsageError:
        return []
    found = _parameters(target, name, given, incomplete)
    # One word may also be a module, and the next the name of its tool.
    return found or (_tools(words[0], incomplete) if len(words) == 1 else [])


def _tools(target: str | None, incomplete: str) -> list[CompletionItem[str]]:
    box = _box(target)
    tools = () if box is None else box.tools
    return [
        CompletionItem(tool.name, help=tool.description.strip().split("\n", 1)[0])
        for tool in tools
        if tool.name.startswith(incomplete)
    ]


def _parameters(target: str | None, name: str, given: tuple[str, ...], incomplete: str) -> list[CompletionItem[str]]:
    box = _box(target)
    if box is None or name not in box:
        return []
    schema = box[name].definition.input_schema
    parts = schema.get("properties", {})
    key, equals, value = incomplete.partition("=")
    if equals:
        words = _values(parts.get(key), schema)
        return [CompletionItem(f"{key}={word}") for word in words if word.startswith(value)]
    taken = {re.split(r":?=", word, maxsplit=1)[0] for word in given}
    return [
        CompletionItem(f"{key}=", help=str(part.get("description") or "") if isinstance(part, dict) else "")
        for key, part in parts.items()
        if key.startswith(incomplete) and key not in taken
    ]


def _values(part: Any, schema: dict[str, Any]) -> Iterator[str]:
    """Yield the values that a parameter may have, where there are few."""
    if not isinstance(part, dict):
        return
    if "$ref" in part:
        part = schema.get("$defs", {}).get(str(part["$ref"]).removeprefix("#/$defs/"), {})
    if part.get("type") == "boolean":
        yield from ("true", "false")
    yield from (str(value) for value in (*part.get("enum", ()), *([part["const"]] if "const" in part else ())))
    for branch in (*part.get("anyOf", ()), *part.get("oneOf", ())):
        yield from _values(branch, schema)


def _box(target: str | None) -> Any:
    """Load a target without a word: a shell reads our output, and a broken target completes nothing."""
    from toolmason.cli.targets import toolbox_at  # noqa: PLC0415 - as above

    silent = io.StringIO()
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        try:
            return toolbox_at(target)
        except (Exception, SystemExit):  # noqa: BLE001 - see above
            return None
