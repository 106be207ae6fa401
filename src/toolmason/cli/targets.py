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

from toolmason._core.catalog.discovery import add_current_folder_to_path, load_target
from toolmason._core.config.config import Config
from toolmason._core.define.experimental import allow_experimental
from toolmason._core.define.tool import Tool
from toolmason._core.load.manifest import MANIFEST_FILE, LoadedManifest, find_manifest, has_manifest
from toolmason._core.load.packages import find_module_spec
from toolmason._core.load.plugins import make_instance
from toolmason._core.toolbox.discover import discover
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason.build.manifest.package_manifest import prepend_to_sys_path
from toolmason.cli.main import NOT_FOUND
from toolmason.errors import ConfigError, UnknownTool
from toolmason.mcp_client.source import McpServer

_CONFIG_SUFFIXES: Final = frozenset({".json", ".toml", ".properties"})


class CallWords(NamedTuple):
    """The words of a call, told apart."""

    target: str | None
    name: str
    arguments: tuple[str, ...]


def split_words(words: tuple[str, ...]) -> CallWords:
    """Tell target, name and arguments apart: an argument has an equal sign, or is `-`.

    One word before the arguments is the name of an installed tool; of two, the first is the target.
    """
    leading = tuple(takewhile(lambda word: "=" not in word and word != "-", words))
    if not leading or (len(leading) == 1 and is_target(leading[0])):
        raise click.UsageError("Missing argument 'NAME'. Write the name of a tool after the target.")
    if len(leading) == 1:
        return CallWords(None, leading[0], words[1:])
    return CallWords(leading[0], leading[1], words[2:])


def is_target(word: str) -> bool:
    """Tell whether a word can only be a target: tools have no colons and no slashes in their names."""
    return ":" in word or "/" in word or word.endswith(".py")


def load_toolbox(target: str | None) -> Toolbox:
    """Load a target, or the tools that are installed; exits with "not found" where there is none."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    config = Config.find()
    config.check()
    if config.experimental:
        allow_experimental()
    if target is None:
        return connect_servers(Toolbox(discover(), *McpServer.from_config(config), config=config))
    try:
        if is_server_config(target):
            return connect_servers(Toolbox(*McpServer.from_config(target), config=config))
        if is_manifest(target):
            return Toolbox(_load_manifest(target), config=config)
        found = load_target(target)
    except ConfigError as error:
        fail(str(error), NOT_FOUND)
    if isinstance(found, ModuleType):
        box = _find_only_toolbox(found, target)
        found = found if box is None else box
    if isinstance(found, Toolbox):
        return connect_servers(found)
    return Toolbox(make_instance(found) if isinstance(found, type) else found, config=config)


def _find_only_toolbox(module: ModuleType, target: str) -> Toolbox | None:
    """Return the toolbox of a module; exits where there are several."""
    boxes: dict[int, tuple[str, Toolbox]] = {}
    for name, box in vars(module).items():
        if isinstance(box, Toolbox):
            boxes.setdefault(id(box), (name, box))
    if len(boxes) > 1:
        # Their tools alone would run without what each toolbox says of approval, limits and failures.
        choices = ", ".join(f"{target}:{name}" for name, _ in boxes.values())
        fail(f"There are {len(boxes)} toolboxes in {target}. Name one of them: {choices}.", NOT_FOUND)
    # An empty toolbox is one, though it is false.
    return next((box for _, box in boxes.values()), None)


def connect_servers(box: Toolbox) -> Toolbox:
    """Connect the servers of a toolbox, if it has any, until the command is over."""
    if box.servers:
        click.get_current_context().call_on_close(box.close_sync)
        box.list_sync()
    return box


def load_servers(target: str) -> list[McpServer]:
    """Return the servers that a target names: a configuration, or a toolbox, module or server in code."""
    if is_server_config(target) or Path(target).suffix in _CONFIG_SUFFIXES:
        return McpServer.from_config(target)
    try:
        found = load_target(target)
    except ConfigError as error:
        fail(str(error), NOT_FOUND)
    candidates = vars(found).values() if isinstance(found, ModuleType) else (found,)
    servers: dict[str, McpServer] = {}
    for candidate in candidates:
        sources = candidate.__gateway__().server_specs if isinstance(candidate, Toolbox) else (candidate,)
        servers.update({source.name: source for source in sources if isinstance(source, McpServer)})
    return list(servers.values())


def is_server_config(target: str) -> bool:
    """Tell whether a target is a file that names MCP servers, as editors write them."""
    if not target.endswith(".json"):
        return False
    try:
        data = from_json(Path(target).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and ("mcpServers" in data or "servers" in data) and "format" not in data


def get_tool(box: Toolbox, name: str) -> Tool:
    """Return a tool by name; exits with "not found" where there is none."""
    if name not in box:
        fail(str(UnknownTool(name, [tool.name for tool in box])), NOT_FOUND)
    return box[name]


def is_manifest(target: str) -> bool:
    """Tell whether a target is a manifest: its file, its folder, or the name of a package that has one."""
    add_current_folder_to_path()
    if target.endswith(".json") or (Path(target) / MANIFEST_FILE).is_file():
        return True
    return ":" not in target and not target.endswith(".py") and has_manifest(target)


def _load_manifest(target: str) -> LoadedManifest:
    loaded = find_manifest(target)
    # Whoever names a file means the package that it is in, as with `path/file.py`.
    root = Path(loaded.location.folder).parents[loaded.manifest.package.count(".")]
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return loaded


def is_importable(name: str, folder: Path | None) -> bool:
    """Tell whether there is a package or module of this name, also in a folder that Python does not look into yet."""
    with prepend_to_sys_path(folder):
        try:
            return find_module_spec(name) is not None
        except (ImportError, ValueError):
            return False


def fail(message: str, code: int) -> NoReturn:
    """Say what is wrong on standard error, and exit."""
    click.echo(f"Error: {message}", err=True)
    raise click.exceptions.Exit(code)


def parse_arguments(words: Iterable[str], documents: Iterable[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments from `key=value`, `key:=json`, `-` for standard input, and whole JSON objects."""
    arguments: dict[str, Any] = {}
    for document in documents:
        arguments.update(_parse_object(document))
    seen: set[str] = set()
    for word in words:
        if word == "-":
            arguments.update(_parse_object(sys.stdin.read()))
            continue
        key, equals, value = word.partition("=")
        if not equals or not key.rstrip(":"):
            raise click.UsageError(f"{word!r} is not an argument. Write key=value, key:=json, or - for standard input.")
        name = key.removesuffix(":")
        _check_parameter(name, schema)
        converted = _parse_json(value, word) if name != key else _convert_argument(name, value, schema, arguments)
        if name in seen and not isinstance(converted, list):
            raise click.UsageError(
                f"{name!r} is given twice: as {arguments[name]!r} and as {converted!r}. Give it once."
            )
        seen.add(name)
        arguments[name] = converted
    return arguments


def _check_parameter(key: str, schema: Mapping[str, Any]) -> None:
    """Refuse a parameter that the tool does not have: a person has misspelt it, where a model would be forgiven."""
    properties = schema.get("properties", {})
    if key in properties or schema.get("additionalProperties") is not False:
        return
    from difflib import get_close_matches  # noqa: PLC0415 - 2 ms at start-up, for a name that is misspelt

    close = get_close_matches(key[:128], properties, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"It takes: {', '.join(properties) or 'nothing'}."
    raise click.UsageError(f"The tool has no parameter {key!r}. {hint}")


def _convert_argument(key: str, value: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Return a value as its parameter wants it; each further one for a list is added to it."""
    property_schema = schema.get("properties", {}).get(key, {})
    types = get_json_types(property_schema, schema)
    if "array" not in types or "string" in types or value.lstrip().startswith("["):
        return convert_text(value, types)
    earlier = arguments.get(key, [])
    if not isinstance(earlier, list):
        raise click.UsageError(f"{key!r} is given twice: as {earlier!r} and as a list. Give it once.")
    return [*earlier, convert_text(value, get_json_types(property_schema.get("items"), schema))]


def convert_text(text: str, types: set[str]) -> Any:
    """Return a word as the schema wants it: a text stays one, anything else is read as JSON where it can be."""
    if not types or "string" in types:
        return text
    try:
        return from_json(text)
    except ValueError:
        return text


def get_json_types(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a parameter takes."""
    if not isinstance(schema, dict):
        return set()
    if "$ref" in schema:
        return get_json_types(root.get("$defs", {}).get(schema["$ref"].removeprefix("#/$defs/")), root)
    branches = schema.get("anyOf") or schema.get("oneOf") or ()
    declared_type = schema.get("type", ())
    return (
        {declared_type}
        if isinstance(declared_type, str)
        else set(declared_type).union(*(get_json_types(branch, root) for branch in branches))
    )


def _parse_json(text: str, word: str) -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        raise click.UsageError(f"{word!r}: not valid JSON after `:=`: {error}") from None


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = from_json(text)
    except ValueError as error:
        raise click.UsageError(f"The arguments are not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise click.UsageError("The arguments must be a JSON object, in braces.")
    return value
