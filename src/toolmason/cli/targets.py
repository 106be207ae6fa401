"""Load the toolbox of a target and parse call arguments from the command line."""

from __future__ import annotations

import logging
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from traceback import FrameSummary, extract_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
from pydantic_core import from_json

from toolmason._core.arguments.problems import explain_json_error
from toolmason._core.catalog.discovery import add_current_folder_to_path, load_target
from toolmason._core.config.config import Config
from toolmason._core.config.mcp_json import TABLE_KEYS
from toolmason._core.define.experimental import allow_experimental
from toolmason._core.define.schema_nodes import get_json_types
from toolmason._core.define.tool import LazyTool, Tool
from toolmason._core.load.json_forms import check_schemas
from toolmason._core.load.manifest import MANIFEST_FILE, LoadedManifest, find_manifest, has_manifest
from toolmason._core.load.packages import find_module_spec, prepend_to_sys_path
from toolmason._core.load.plugins import make_instance
from toolmason._core.run.blocking import run_blocking
from toolmason._core.run.call_log import CALL_LOG
from toolmason._core.toolbox.discover import discover
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._text import MAX_PROBLEMS_SHOWN, suggest_name
from toolmason.cli.main import NOT_FOUND, TOOL_ERROR
from toolmason.cli.output import print_error
from toolmason.errors import ConfigError, DefinitionError, ExecutionError, InvalidArguments, UnknownName
from toolmason.mcp_client.source import McpServer

if TYPE_CHECKING:  # 0.1 s at start-up; a target that is a chat has loaded it
    from toolmason.chat.chat import Chat

_SERVER_FAILURE: Final = "server %r %s: %s"
"""Log message about a server that cannot be used or refreshed."""
API_VARIABLE: Final = "TOOLMASON_API"
"""Start of the environment variables with the address (`_URL`) and the credentials (`_AUTH_<SCHEME>`) of an API."""
_CONFIG_SUFFIXES: Final = frozenset({".json", ".toml", ".properties"})


def split_words(words: tuple[str, ...]) -> tuple[str | None, str, tuple[str, ...]]:
    """Split the arguments of `toolmason call` into target, name and arguments.

    Arguments contain `=` or are `-`. One item before them is the name of an installed tool; of two, the first
    is the target.
    """
    # The URI of a resource may contain `=`, but an argument has no `://` before it.
    leading = tuple(takewhile(lambda word: word != "-" and ("=" not in word or "://" in word.split("=")[0]), words))
    if not leading or (len(leading) == 1 and is_target(leading[0])):
        raise click.UsageError("Missing argument 'NAME'. Write the name of a tool after the target.")
    if len(leading) == 1:
        return None, leading[0], words[1:]
    return leading[0], leading[1], words[2:]


def is_target(word: str) -> bool:
    """Return True if an argument can only be a target: tool names contain no colons and no slashes."""
    return ":" in word or "/" in word or word.endswith(".py")


class TargetNotFound(ConfigError):
    """The target does not exist, cannot be loaded, or has several toolboxes."""


def load_toolbox(target: str | None, *, logs_failures: bool = False, reports_servers: bool = False) -> Toolbox:
    """Load a target, or the installed tools if it is None; exit with "not found" if the target does not exist.

    Most commands print the failures of tools themselves; one that does not lets them be logged. A command that also
    prints the servers that fail sets `reports_servers`.
    """
    if logging.lastResort is not None and not logs_failures:
        logging.lastResort.addFilter(_is_not_about_a_call)
    try:
        found = load_source(target, reports_servers=reports_servers)
    except TargetNotFound as error:
        fail(str(error), NOT_FOUND)
    return found if isinstance(found, Toolbox) else found.box


def load_source(target: str | None, *, reports_servers: bool = False) -> Toolbox | Chat:
    """Load a target and connect its servers. Return its toolbox, or the chat that it names.

    Raises:
        TargetNotFound: the target does not exist, or cannot be loaded; the message says why.
    """
    config = Config.find()
    config.check()
    if config.experimental:
        allow_experimental()
    # A target names all the tools that the command may use.
    found = discover(config=config) if target is None else _find_source(target, config.without_servers())
    box = connect_servers(found if isinstance(found, Toolbox) else found.box, reports=reports_servers)
    try:
        for tool in box.tools:
            if isinstance(tool, LazyTool):  # a manifest may be damaged
                check_schemas(tool.definition, tool.origin)
    except ConfigError as error:
        raise TargetNotFound(str(error)) from error
    return found


def _find_source(target: str, config: Config) -> Toolbox | Chat:
    try:
        if is_api_document(target):
            return _load_api(target, config)
        if is_server_config(target):
            return Toolbox(*McpServer.from_config(target), config=config)
        if is_manifest(target):
            return Toolbox(_load_manifest(target), config=config)
        found = _load_code(target)
    except ConfigError as error:
        raise TargetNotFound(str(error)) from error
    box = _find_only_toolbox(found, target) if isinstance(found, ModuleType) else found
    if isinstance(box, Toolbox):
        return box
    if type(found).__module__ == "toolmason.chat.chat":
        chat: Chat = found  # pyright: ignore[reportAssignmentType] - the class is known by its module, to load it late
        return chat
    return Toolbox(make_instance(found) if isinstance(found, type) else found, config=config)


def _load_code(target: str) -> Any:
    try:
        return load_target(target)
    except ConfigError as error:
        if isinstance(error.__cause__, DefinitionError):  # raised by the file, because it has a toolbox of its own
            raise DefinitionError(str(error)) from error
        raise


def _is_not_about_a_call(record: logging.LogRecord) -> bool:
    return record.name != CALL_LOG.name


def _is_not_about_a_server(record: logging.LogRecord) -> bool:
    return record.msg != _SERVER_FAILURE


def _find_only_toolbox(module: ModuleType, target: str) -> Toolbox | None:
    """Return the only toolbox of a module, or None; raise `TargetNotFound` if the module has several."""
    boxes: dict[int, tuple[str, Toolbox]] = {}
    for name, box in vars(module).items():
        if isinstance(box, Toolbox):
            boxes.setdefault(id(box), (name, box))
    if len(boxes) > 1:
        # Their bare tools would run without the approval rules, limits and error handling of a toolbox.
        choices = ", ".join(f"{target}:{name}" for name, _ in boxes.values())
        raise TargetNotFound(f"{target} has {len(boxes)} toolboxes. Name one of them: {choices}.")
    # Compare with None: an empty toolbox is falsy.
    return next((box for _, box in boxes.values()), None)


def connect_servers(box: Toolbox, *, reports: bool = False) -> Toolbox:
    """Connect the servers of a toolbox, if any, until the command ends.

    `reports` says that the command prints the servers that fail, so they are not logged as well.
    """
    if reports and logging.lastResort is not None:
        logging.lastResort.addFilter(_is_not_about_a_server)
    if box.servers:
        remotes = get_state(box).remotes
        # Not `box.close_sync`: the target may be a view, which leaves the connections to its toolbox.
        click.get_current_context().call_on_close(lambda: run_blocking(remotes.aclose()))
        box.list_sync()
    return box


def fail_if_down(box: Toolbox, sign_in_hint: str = "") -> None:
    """Print the servers that cannot be used, and exit if there are any."""
    down = {name: state for name, state in box.health_sync().items() if not state}
    for name, state in down.items():
        hint = sign_in_hint if state.needs_auth else ""
        print_error(f"Server {name!r} cannot be used: {str(state.error).rstrip('.')}. {hint}".rstrip())
    if down:
        raise click.exceptions.Exit(TOOL_ERROR)


def load_servers(target: str) -> list[McpServer]:
    """Return the servers of a target: a configuration file, or a toolbox, module or server in code."""
    if is_server_config(target) or Path(target).suffix in _CONFIG_SUFFIXES:
        return McpServer.from_config(target)
    try:
        found = _load_code(target)
    except ConfigError as error:
        fail(str(error), NOT_FOUND)
    candidates = vars(found).values() if isinstance(found, ModuleType) else (found,)
    servers: dict[str, McpServer] = {}
    for candidate in candidates:
        sources = get_state(candidate).remotes.sources if isinstance(candidate, Toolbox) else ()
        specs = [candidate, *(source.server for source in sources)]
        servers.update({server.name: server for server in specs if isinstance(server, McpServer)})
    return list(servers.values())


def is_server_config(target: str) -> bool:
    """Return True if a target is a JSON file with MCP servers, in the format of editors."""
    data = _read_json_object(target)
    return not data.keys().isdisjoint(TABLE_KEYS) and "format" not in data and not _is_api(data)


def is_api_document(target: str) -> bool:
    """Return True if a target is an OpenAPI document: a URL, a YAML file, or a JSON file that says so."""
    return (
        target.startswith(("http://", "https://"))
        or target.endswith((".yaml", ".yml"))
        or _is_api(_read_json_object(target))
    )


def _is_api(data: Mapping[str, Any]) -> bool:
    return "openapi" in data or "swagger" in data


def _read_json_object(target: str) -> Mapping[str, Any]:
    """Return the object in a JSON file; an empty one if it has none."""
    if not target.endswith(".json"):
        return {}
    try:
        data = from_json(Path(target).read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _load_api(target: str, config: Config) -> Toolbox:
    """Return the tools of an OpenAPI document. Address and credentials come from the environment."""
    from toolmason.openapi.document import load_document  # noqa: PLC0415 - loads an HTTP library
    from toolmason.openapi.open_api import OpenApi  # noqa: PLC0415 - as above

    document = load_document(target)
    schemes = document.root.get("components", {}).get("securitySchemes") or {}
    variables = {scheme: f"{API_VARIABLE}_AUTH_{re.sub(r'[^A-Za-z0-9]+', '_', scheme).upper()}" for scheme in schemes}
    auth = {scheme: text for scheme, name in variables.items() if (text := os.environ.get(name))}
    return Toolbox(OpenApi(document, base_url=os.environ.get(f"{API_VARIABLE}_URL"), auth=auth), config=config)


def get_tool(box: Toolbox, name: str) -> Tool:
    """Return a tool by name; exit with "not found" if it does not exist."""
    try:
        return box[name]
    except UnknownName as error:
        fail(str(error), NOT_FOUND)


def is_manifest(target: str) -> bool:
    """Return True if a target is a manifest: its file, its folder, or the name of a package that has one."""
    add_current_folder_to_path()
    if target.endswith(".json") or (Path(target) / MANIFEST_FILE).is_file():
        return True
    return ":" not in target and not target.endswith(".py") and has_manifest(target)


def _load_manifest(target: str) -> LoadedManifest:
    loaded = find_manifest(target)
    # As with `path/file.py`, a file path means the package that contains it.
    root = Path(loaded.location.folder).parents[loaded.manifest.package.count(".")]
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return loaded


def is_importable(name: str, folder: Path | None) -> bool:
    """Return True if a package or module exists, also searching a folder that is not on `sys.path`."""
    with prepend_to_sys_path(folder):
        try:
            return find_module_spec(name) is not None
        except (ImportError, ValueError):
            return False


def fail(message: str, code: int) -> NoReturn:
    """Print an error message to standard error and exit."""
    print_error(message)
    raise click.exceptions.Exit(code)


def describe_error(error: Exception) -> str:
    """Return the message of an error, with the values of invalid arguments, or the line of the tool that failed."""
    problems = error.problems[:MAX_PROBLEMS_SHOWN] if isinstance(error, InvalidArguments) else ()
    # A description without a value is one word, such as "nothing"; the message says as much.
    details = [f"  {item.path}: got {item.got}" for item in problems if " " in item.got]
    if isinstance(error, ExecutionError) and (frame := _find_failed_line(error.__cause__)) is not None:
        details.append(f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}")
    return "\n".join((str(error), *details))


def _find_failed_line(error: BaseException | None) -> FrameSummary | None:
    """Return the innermost line of the user's code that an exception came through, or None if there is none."""
    libraries = (*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), str(Path(__file__).parents[1]))
    frames = extract_tb(None if error is None else error.__traceback__)
    return next((frame for frame in reversed(frames) if not frame.filename.startswith((*libraries, "<"))), None)


def parse_arguments(words: Iterable[str], documents: Iterable[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments from `key=value`, `key:=json`, `-` for standard input, and JSON objects."""
    arguments: dict[str, Any] = {}
    for document in documents:
        arguments.update(parse_object(document))
    seen: set[str] = set()
    for word in words:
        if word == "-":
            arguments.update(parse_object(sys.stdin.read()))
            continue
        key, equals, value = word.partition("=")
        if not equals or not key.rstrip(":"):
            raise click.UsageError(
                f"{word!r} is not an argument. Write key=value, key:=json, --arguments OBJECT, or - for standard input."
            )
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
    """Reject unknown parameters: a person has misspelled them, whereas extra keys of a model may be ignored."""
    properties = schema.get("properties", {})
    if key in properties or schema.get("additionalProperties") is not False:
        return
    hint = suggest_name(key, properties, f"Parameters: {', '.join(properties) or 'none'}.")
    raise click.UsageError(f"The tool has no parameter {key!r}. {hint}")


def _convert_argument(key: str, value: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Return a value converted to its parameter's type; repeated values of a list parameter are appended."""
    property_schema = schema.get("properties", {}).get(key, {})
    types = get_json_types(property_schema, schema)
    if "array" not in types or "string" in types or value.lstrip().startswith("["):
        return _convert_text(value, types)
    earlier = arguments.get(key, [])
    if not isinstance(earlier, list):
        raise click.UsageError(f"{key!r} is given twice: as {earlier!r} and as a list. Give it once.")
    return [*earlier, _convert_text(value, get_json_types(property_schema.get("items"), schema))]


def _convert_text(text: str, types: set[str]) -> Any:
    """Return text as the schema expects it: unchanged for strings, otherwise parsed as JSON if possible."""
    return text if not types or "string" in types else parse_json_or_text(text)


def parse_json_or_text(text: str) -> Any:
    """Return the value of JSON text; other text is returned unchanged."""
    try:
        return from_json(text)
    except ValueError:
        return text


def _parse_json(text: str, word: str) -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        raise click.UsageError(f"{word!r}: not valid JSON after `:=`: {explain_json_error(str(error))}") from None


def parse_object(text: str) -> dict[str, Any]:
    """Return arguments that the user has written as a JSON object."""
    try:
        value = from_json(text)
    except ValueError as error:
        raise click.UsageError(f"The arguments are not valid JSON: {explain_json_error(str(error))}") from None
    if not isinstance(value, dict):
        raise click.UsageError("The arguments must be a JSON object, in braces.")
    return value
