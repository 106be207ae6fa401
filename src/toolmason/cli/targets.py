"""A target on the command line → a toolbox, and words on the command line → arguments.

Lives here: what every subcommand shares. Not here: printing.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, NoReturn

import click
from pydantic_core import from_json

from toolmason._core.catalog.discovery import load_target, look_in_current_folder
from toolmason._core.config.config import Config
from toolmason._core.define.experimental import allow_experimental
from toolmason._core.define.tool import Tool
from toolmason._core.load.manifest import FILE, Shelf, find_manifest, has_manifest
from toolmason._core.load.packages import spec_of
from toolmason._core.load.plugins import instance_of
from toolmason._core.toolbox.discover import discover
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason.build.manifest.package_manifest import importing_from
from toolmason.cli.main import NOT_FOUND
from toolmason.errors import ConfigError, UnknownTool
from toolmason.mcp_client.source import McpServer

_CONFIGURATIONS: Final = frozenset({".json", ".toml", ".properties"})


class Words(NamedTuple):
    """The words of a call, told apart."""

    target: str | None
    name: str
    arguments: tuple[str, ...]


def told_apart(words: tuple[str, ...]) -> Words:
    """Tell target, name and arguments apart: an argument has an equal sign, or is `-`.

    One word before the arguments is the name of an installed tool; of two, the first is the target.
    """
    leading = tuple(takewhile(lambda word: "=" not in word and word != "-", words))
    if not leading or (len(leading) == 1 and is_target(leading[0])):
        raise click.UsageError("Missing argument 'NAME'. Write the name of a tool after the target.")
    if len(leading) == 1:
        return Words(None, leading[0], words[1:])
    return Words(leading[0], leading[1], words[2:])


def is_target(word: str) -> bool:
    """Tell whether a word can only be a target: tools have no colons and no slashes in their names."""
    return ":" in word or "/" in word or word.endswith(".py")


def toolbox_at(target: str | None) -> Toolbox:
    """Load a target, or the tools that are installed; exits with "not found" where there is none."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    config = Config.find()
    config.check()
    if config.experimental:
        allow_experimental()
    if target is None:
        return with_servers(Toolbox(discover(), *McpServer.from_config(config), config=config))
    try:
        if names_servers(target):
            return with_servers(Toolbox(*McpServer.from_config(target), config=config))
        if is_manifest(target):
            return Toolbox(_shelf_at(target), config=config)
        found = load_target(target)
    except ConfigError as error:
        fail(str(error), NOT_FOUND)
    if isinstance(found, ModuleType):
        box = _only_box(found, target)
        found = found if box is None else box
    if isinstance(found, Toolbox):
        return with_servers(found)
    return Toolbox(instance_of(found) if isinstance(found, type) else found, config=config)


def _only_box(module: ModuleType, target: str) -> Toolbox | None:
    """Return the toolbox of a module; exits where there are several."""
    boxes: dict[int, tuple[str, Toolbox]] = {}
    for name, box in vars(module).items():
        if isinstance(box, Toolbox):
            boxes.setdefault(id(box), (name, box))
    if len(boxes) > 1:
        # Their tools alone would run without what each toolbox says of approval, limits and failures.
        named = ", ".join(f"{target}:{name}" for name, _ in boxes.values())
        fail(f"There are {len(boxes)} toolboxes in {target}. Name one of them: {named}.", NOT_FOUND)
    # An empty toolbox is one, though it is false.
    return next((box for _, box in boxes.values()), None)


def with_servers(box: Toolbox) -> Toolbox:
    """Connect the servers of a toolbox, if it has any, until the command is over."""
    if box.servers:
        click.get_current_context().call_on_close(box.close_sync)
        box.list_sync()
    return box


def servers_at(target: str) -> list[McpServer]:
    """Return the servers that a target names: a configuration, or a toolbox, module or server in code."""
    if names_servers(target) or Path(target).suffix in _CONFIGURATIONS:
        return McpServer.from_config(target)
    try:
        found = load_target(target)
    except ConfigError as error:
        fail(str(error), NOT_FOUND)
    things = vars(found).values() if isinstance(found, ModuleType) else (found,)
    servers: dict[str, McpServer] = {}
    for thing in things:
        given = thing.__behind__().given if isinstance(thing, Toolbox) else (thing,)
        servers.update({one.name: one for one in given if isinstance(one, McpServer)})
    return list(servers.values())


def names_servers(target: str) -> bool:
    """Tell whether a target is a file that names MCP servers, as editors write them."""
    if not target.endswith(".json"):
        return False
    try:
        data = from_json(Path(target).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and ("mcpServers" in data or "servers" in data) and "format" not in data


def tool_in(box: Toolbox, name: str) -> Tool:
    """Return a tool by name; exits with "not found" where there is none."""
    if name not in box:
        fail(str(UnknownTool(name, [tool.name for tool in box])), NOT_FOUND)
    return box[name]


def is_manifest(target: str) -> bool:
    """Tell whether a target is a manifest: its file, its folder, or the name of a package that has one."""
    look_in_current_folder()
    if target.endswith(".json") or (Path(target) / FILE).is_file():
        return True
    return ":" not in target and not target.endswith(".py") and has_manifest(target)


def _shelf_at(target: str) -> Shelf:
    shelf = find_manifest(target)
    # Whoever names a file means the package that it is in, as with `path/file.py`.
    root = Path(shelf.home.folder).parents[shelf.manifest.package.count(".")]
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return shelf


def is_importable(name: str, folder: Path | None) -> bool:
    """Tell whether there is a package or module of this name, also in a folder that Python does not look into yet."""
    with importing_from(folder):
        try:
            return spec_of(name) is not None
        except (ImportError, ValueError):
            return False


def fail(message: str, code: int) -> NoReturn:
    """Say what is wrong on standard error, and exit."""
    click.echo(f"Error: {message}", err=True)
    raise click.exceptions.Exit(code)


def arguments_from(words: Iterable[str], documents: Iterable[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments from `key=value`, `key:=json`, `-` for standard input, and whole JSON objects."""
    arguments: dict[str, Any] = {}
    for document in documents:
        arguments.update(_object(document))
    written: set[str] = set()
    for word in words:
        if word == "-":
            arguments.update(_object(sys.stdin.read()))
            continue
        key, equals, value = word.partition("=")
        if not equals or not key.rstrip(":"):
            raise click.UsageError(f"{word!r} is not an argument. Write key=value, key:=json, or - for standard input.")
        name = key.removesuffix(":")
        _look_up(name, schema)
        found = _json(value, word) if name != key else _as_wanted(name, value, schema, arguments)
        if name in written and not isinstance(found, list):
            raise click.UsageError(f"{name!r} is given twice: as {arguments[name]!r} and as {found!r}. Give it once.")
        written.add(name)
        arguments[name] = found
    return arguments


def _look_up(key: str, schema: Mapping[str, Any]) -> None:
    """Refuse a parameter that the tool does not have: a person has misspelt it, where a model would be forgiven."""
    known = schema.get("properties", {})
    if key in known or schema.get("additionalProperties") is not False:
        return
    from difflib import get_close_matches  # noqa: PLC0415 - 2 ms at start-up, for a name that is misspelt

    close = get_close_matches(key[:128], known, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"It takes: {', '.join(known) or 'nothing'}."
    raise click.UsageError(f"The tool has no parameter {key!r}. {hint}")


def _as_wanted(key: str, value: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Return a value as its parameter wants it; each further one for a list is added to it."""
    part = schema.get("properties", {}).get(key, {})
    kinds = kinds_of(part, schema)
    if "array" not in kinds or "string" in kinds or value.lstrip().startswith("["):
        return typed(value, kinds)
    before = arguments.get(key, [])
    if not isinstance(before, list):
        raise click.UsageError(f"{key!r} is given twice: as {before!r} and as a list. Give it once.")
    return [*before, typed(value, kinds_of(part.get("items"), schema))]


def typed(text: str, kinds: set[str]) -> Any:
    """Return a word as the schema wants it: a text stays one, anything else is read as JSON where it can be."""
    if not kinds or "string" in kinds:
        return text
    try:
        return from_json(text)
    except ValueError:
        return text


def kinds_of(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a parameter takes."""
    if not isinstance(schema, dict):
        return set()
    if "$ref" in schema:
        return kinds_of(root.get("$defs", {}).get(schema["$ref"].removeprefix("#/$defs/")), root)
    branches = schema.get("anyOf") or schema.get("oneOf") or ()
    own = schema.get("type", ())
    return {own} if isinstance(own, str) else set(own).union(*(kinds_of(branch, root) for branch in branches))


def _json(text: str, word: str) -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        raise click.UsageError(f"{word!r}: not valid JSON after `:=`: {error}") from None


def _object(text: str) -> dict[str, Any]:
    try:
        value = from_json(text)
    except ValueError as error:
        raise click.UsageError(f"The arguments are not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise click.UsageError("The arguments must be a JSON object, in braces.")
    return value
