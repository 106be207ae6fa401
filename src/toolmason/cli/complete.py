"""Complete tools, parameters and values in bash, zsh and fish.

Completion loads the target, as the command itself does. Bash splits its arguments at `:` and `=`.
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

from toolmason._core.define.schema_nodes import resolve
from toolmason.cli.output import escape_controls

_WORD_BREAKS: Final = re.compile(r"[:=]+")

_BASH_SCRIPT: Final = """\
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


class _BashCompletion(BashComplete):
    """Bash completion that rejoins arguments split at `:` and `=`."""

    source_template = _BASH_SCRIPT
    _replaced_prefix: str = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        words = split_arg_string(os.environ["COMP_WORDS"])
        index = int(os.environ["COMP_CWORD"])
        words = [*words[:index], words[index] if index < len(words) else ""]
        joined = list(_join_words(words))
        *args, incomplete = joined
        if len(joined) != len(words):
            # Bash replaces only the text after the last break.
            breaks = list(_WORD_BREAKS.finditer(incomplete))
            self._replaced_prefix = incomplete[: breaks[-1].end()] if breaks else ""
        return args[1:], incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        return f"{item.type},{str(item.value).removeprefix(self._replaced_prefix)}"


def _join_words(words: list[str]) -> Iterator[str]:
    joined = ""
    continues = True
    for word in words:
        is_break = _WORD_BREAKS.fullmatch(word) is not None
        if not (continues or is_break):
            yield joined
            joined = ""
        joined += word
        continues = is_break
    yield joined


def register() -> None:
    """Replace click's completion for bash."""
    add_completion_class(_BashCompletion)


def complete_list(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete the arguments of `toolmason list`."""
    if param.name == "target":
        return [CompletionItem(incomplete, type="file")]
    return _complete_tools(ctx.params.get("target"), incomplete)


def complete_call(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete the arguments of `toolmason call`."""
    del param
    words = tuple(ctx.params.get("words") or ())
    if not words:
        return [*_complete_tools(None, incomplete), CompletionItem(incomplete, type="file")]
    from toolmason.cli.targets import is_target, split_words  # noqa: PLC0415 - loads the core, needed only for this completion

    if len(words) == 1 and is_target(words[0]):
        return _complete_tools(words[0], incomplete)
    try:
        target, name, given = split_words(words)
    except click.UsageError:
        return []
    found = _complete_parameters(target, name, given, incomplete)
    # A single argument may also be a module, followed by the name of its tool.
    return found or (_complete_tools(words[0], incomplete) if len(words) == 1 else [])


def _complete_tools(target: str | None, incomplete: str) -> list[CompletionItem[str]]:
    box = _load_quietly(target)
    tools = () if box is None else box.tools
    return [
        CompletionItem(tool.name, help=escape_controls(tool.description.strip().split("\n", 1)[0]))
        for tool in tools
        if tool.name.startswith(incomplete)
    ]


def _complete_parameters(
    target: str | None, name: str, given: tuple[str, ...], incomplete: str
) -> list[CompletionItem[str]]:
    box = _load_quietly(target)
    if box is None or name not in box:
        return []
    schema = box[name].definition.input_schema
    properties = schema.get("properties", {})
    key, equals, value = incomplete.partition("=")
    if equals:
        words = _list_values(properties.get(key), schema)
        return [CompletionItem(f"{key}={word}") for word in words if word.startswith(value)]
    given_keys = {re.split(r":?=", word, maxsplit=1)[0] for word in given}
    return [
        CompletionItem(
            f"{key}=",
            help=escape_controls(str(property_schema.get("description") or "")).replace("\n", " ")
            if isinstance(property_schema, dict)
            else "",
        )
        for key, property_schema in properties.items()
        if key.startswith(incomplete) and key not in given_keys
    ]


def _list_values(property_schema: Any, schema: dict[str, Any]) -> Iterator[str]:
    """Yield the values of a parameter if its schema enumerates them."""
    property_schema = resolve(property_schema, schema)
    if property_schema.get("type") == "boolean":
        yield from ("true", "false")
    yield from map(str, property_schema.get("enum", ()))
    if "const" in property_schema:
        yield str(property_schema["const"])
    for branch in (*property_schema.get("anyOf", ()), *property_schema.get("oneOf", ())):
        yield from _list_values(branch, schema)


def _load_quietly(target: str | None) -> Any:
    """Load a target without output, which the shell would read; return None if loading fails."""
    from toolmason.cli.targets import load_toolbox  # noqa: PLC0415 - as above

    discarded = io.StringIO()
    with contextlib.redirect_stdout(discarded), contextlib.redirect_stderr(discarded):
        try:
            return load_toolbox(target)
        except (Exception, SystemExit):  # noqa: BLE001 - loading runs the user's code, which may raise anything
            return None
