"""Build the manifest of a package; the same source gives the same bytes on every machine."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from toolmason._core.catalog.catalog import Catalog, ToolSource, refuse_builtin_name
from toolmason._core.catalog.discovery import find_declared_members, load_module
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.tool import Tool
from toolmason._core.load.json_forms import JsonObject, dump_definition, dump_options, wraps_result
from toolmason._core.load.manifest import MANIFEST_FILE, MANIFEST_FORMAT, MANIFEST_VERSION
from toolmason._core.load.members import Member, deduplicate_members, find_required_arguments, is_restricted
from toolmason._core.load.packages import (
    PackageLocation,
    find_package_locations,
    hash_source,
    iter_package_modules,
    prepend_to_sys_path,
)
from toolmason._core.remote.protocol import RemoteSource
from toolmason._text import pluralize
from toolmason.errors import ConfigError, DefinitionError


@dataclass(frozen=True, slots=True, eq=False)
class ManifestFile:
    """A built manifest and its path."""

    content: JsonObject
    data: bytes
    """The encoded file."""
    path: Path

    @property
    def notes(self) -> list[str]:
        """Members of the package that a manifest cannot list, described one per line."""
        return list(self.content["notes"])


def locate_package(target: str) -> tuple[str, Path | None]:
    """Return the package that a target (a name or a folder) names, and the folder to import it from.

    Raises:
        ConfigError: the folder does not exist.
    """
    path = Path(target)
    if "/" not in target and os.sep not in target and not path.is_dir():
        return target, Path.cwd()
    if not path.is_dir():
        raise ConfigError(f"Folder {target!r} does not exist. Give the name or the folder of a package.")
    folder = path.resolve()
    parts = [folder.name]
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
        parts.insert(0, folder.name)
    return ".".join(parts), folder.parent


def build(package: str, exclude: Sequence[str] = ()) -> ManifestFile:
    """Import every module of a package, except those that match `exclude`, and return the manifest.

    Raises:
        ConfigError: the package cannot be found, imported or written to.
        DuplicateTool: two tools of the package have the same name; the error names both.
        DefinitionError: a tool has an invalid definition.
    """
    location = _find_location(package)
    notes: list[str] = []
    modules: list[ModuleType] = []
    for name, _ in iter_package_modules(location):
        if any(fnmatchcase(name, pattern) for pattern in exclude):
            continue
        if name.endswith(".__main__"):
            if b"toolmason" in (location.read_source(name) or b""):
                notes.append(f"{name}: skipped, because importing it runs the program")
            continue
        modules.append(load_module(name, name))
    found_members = sorted(deduplicate_members(modules).items())
    members: BuiltMembers = {
        module: [(member, member.describe()) for member in found] for module, found in found_members
    }
    content = _make_content(location, members, notes)
    owners = [member.owner for found in members.values() for member, _ in found if member.owner is not None]
    for module in modules:
        notes.extend(_find_omissions(module, owners))
        marked = list(_find_marked(module))
        notes.extend(f"{place}: marked with @supported_for, so not listed" for place in marked)
        content["partial"] = content["partial"] or bool(marked)
    content["notes"] = sorted(set(notes))
    return ManifestFile(content, _encode(content, _encode) + b"\n", Path(location.folder) / MANIFEST_FILE)


def _find_location(package: str) -> PackageLocation:
    locations = find_package_locations(package)
    if len(locations) != 1:
        folders = ", ".join(repr(location.folder) for location in locations)
        raise ConfigError(
            f"{package!r} is a namespace package in {len(locations)} folders ({folders}). "
            "Build its packages one by one: `toolmason build package.inner`."
        )
    if locations[0].get_data is not None or not Path(locations[0].folder).is_dir():
        raise ConfigError(f"{package!r} is in an archive ({locations[0].folder!r}). Build it from its source folder.")
    return locations[0]


BuiltMembers: TypeAlias = dict[str, list[tuple[Member, Tool | Prompt]]]
"""Tools and prompts by module."""


def _make_content(location: PackageLocation, members: BuiltMembers, notes: list[str]) -> JsonObject:
    # The application chooses between classes that need arguments, so two of them may have a tool of the same name.
    catalogs: dict[str, Catalog] = {}
    classes = dict(_find_classes(members))
    paths: dict[int, str] = {}
    for module, found in members.items():
        for member, item in found:
            if isinstance(item, Tool):
                refuse_builtin_name(item)
            place = f"{module}:{member.qualname.partition('.')[0]}"
            catalogs.setdefault(place if classes.get(place) else "", Catalog()).add(item)
            paths[id(item)] = f"{module}:{member.qualname}"
    notes.extend(
        f"{place}: needs constructor arguments ({', '.join(required)}), so pass an instance of it: "
        f"`Toolbox.from_manifest(..., instances={{{place!r}: ...}})`"
        for place, required in classes.items()
        if required
    )
    prompts = [prompt for catalog in catalogs.values() for prompt in catalog.prompts.values()]
    tools = [tool for catalog in catalogs.values() for tool in catalog]
    return {
        "classes": dict(sorted(classes.items())),
        "format": MANIFEST_FORMAT,
        "modules": {module: _hash_module(location, module, notes) for module in members},
        "notes": [],
        "package": location.package,
        "partial": False,
        "prompts": [
            {
                "description": prompt.description,
                "input_schema": prompt.input_schema,
                "name": prompt.name,
                "path": paths[id(prompt)],
                "role": prompt.role,
            }
            for prompt in sorted(prompts, key=lambda prompt: (prompt.name, paths[id(prompt)]))
        ],
        "tools": [
            _make_tool_entry(tool, paths[id(tool)], location, notes)
            for tool in sorted(tools, key=lambda tool: (tool.name, paths[id(tool)]))
        ],
        "version": MANIFEST_VERSION,
    }


def _find_classes(members: BuiltMembers) -> Iterator[tuple[str, list[str]]]:
    """Yield the path of each class whose tools need an instance, and its required constructor arguments."""
    for module, found in members.items():
        for member, _ in found:
            if member.needs_instance:
                yield f"{module}:{member.qualname.partition('.')[0]}", find_required_arguments(member.owner)


def _hash_module(location: PackageLocation, module: str, notes: list[str]) -> str | None:
    source = location.read_source(module)
    if source is None:
        notes.append(f"{module}: has no Python source, so changes are not detected")
        return None
    return hash_source(source)


def _make_tool_entry(tool: Tool, path: str, location: PackageLocation, notes: list[str]) -> JsonObject:
    options, lost = dump_options(tool.options)
    notes.extend(f"{path}: meta[{key!r}] has no JSON form, so it is available only after loading" for key in lost)
    if str(Path(location.folder).parent) in json.dumps(dump_definition(tool.definition)):
        notes.append(f"{path}: its definition contains a path of the build machine")
    entry = {**dump_definition(tool.definition), "options": options, "path": path}
    output_fields = (tool.definition.output_schema or {}).get("properties", {})
    if list(output_fields) == ["result"] and not wraps_result(tool):
        entry["wrapped"] = False
    return dict(sorted(entry.items()))


def _encode(value: Any, dump: Callable[[Any], bytes] | None = None) -> bytes:
    # Top-level keys are sorted. Schema keys keep their order, because the model reads parameters in that order.
    # One line per entry gives readable diffs and is a third smaller to read at start-up.
    dump = dump or _dump
    if isinstance(value, dict) and value:
        return b"{\n" + b",\n".join(_dump(key) + b": " + dump(item) for key, item in value.items()) + b"\n}"
    return b"[\n" + b",\n".join(map(dump, value)) + b"\n]" if isinstance(value, list) and value else dump(value)


def _dump(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError as error:
        culprit = f"tool {value['name']!r}" if isinstance(value, dict) else "the manifest"
        raise DefinitionError(
            f"{culprit} cannot be written as JSON: {error}. Change its default or example."
        ) from error


# --- members that are not listed ---------------------------------------------------------------


def _find_omissions(module: ModuleType, owners: Sequence[Any]) -> Iterator[str]:
    """Yield a note for each member that a manifest cannot list."""
    for name, item in vars(module).items():
        place = f"{module.__name__}:{name}"
        if isinstance(item, type):
            is_hidden = item.__module__ == module.__name__ and (name.startswith("_") or inspect.isabstract(item))
            names = [*find_declared_members(item, "tool"), *find_declared_members(item, "prompt")] if is_hidden else []
            if names and not any(issubclass(o if isinstance(o, type) else type(o), item) for o in owners):
                yield f"{place}: a private or abstract class; its tools are not listed: {_format_names(names)}"
        elif isinstance(item, RemoteSource):
            yield f"{place}: a {type(item).__name__}; the tools of a server are not listed"
        elif isinstance(item, ToolSource) and not isinstance(item, Tool):
            tool_names = _format_names(_list_tool_names(item))
            yield f"{place}: a {type(item).__name__}; the policy for its tools is code and not listed: {tool_names}"


def _find_marked(module: ModuleType) -> Iterator[str]:
    """Yield the places marked with `@supported_for`."""
    if is_restricted(module):
        yield module.__name__
    for name, item in vars(module).items():
        is_defined_here = getattr(item, "__module__", module.__name__) == module.__name__
        if is_defined_here and not isinstance(item, ModuleType):
            kind = item if isinstance(item, type) else type(item)
            methods = [*find_declared_members(kind, "tool").items(), *find_declared_members(kind, "prompt").items()]
            yield from ([f"{module.__name__}:{name}"] if is_restricted(item) else [])
            yield from (f"{module.__name__}:{name}.{method}" for method, (raw, _) in methods if is_restricted(raw))


def _list_tool_names(source: ToolSource) -> list[str]:
    try:
        return [tool.name for tool in source.__tools__()]
    except Exception:  # noqa: BLE001 - the source is user code, and the names are only for a note
        return []


def _format_names(names: Iterable[str], max_shown: int = 10) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - max_shown} more" if len(listed) > max_shown else ""
    return f"{', '.join(listed[:max_shown]) or 'none'}{more}"


# --- the file ----------------------------------------------------------------------------------


def build_target(target: str, exclude: Sequence[str] = ()) -> ManifestFile:
    """Build the manifest of a package, given by name or folder."""
    package, folder = locate_package(target)
    with prepend_to_sys_path(folder):
        built = build(package, exclude)
    if folder is not None and target != package and built.path.parent.resolve() != Path(target).resolve():
        raise ConfigError(
            f"Python finds {package!r} at {str(built.path.parent)!r}, not at {target!r}. "
            "Uninstall the other copy, or build that one."
        )
    return built


def build_for_wheel(folder: Path, exclude: Sequence[str], *, report: Callable[[str], object]) -> ManifestFile:
    """Build the manifest of a package for a wheel, without writing to the source folder.

    Raises:
        ConfigError: the package cannot be imported; its dependencies must be installed.
    """
    previous_setting = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    known_modules = set(sys.modules)
    try:
        built = build_target(str(folder.resolve()), exclude)
    except ConfigError as error:
        raise ConfigError(
            f"{error} The build imports the package: add its dependencies to `[build-system] requires`, "
            "or skip modules with `exclude`."
        ) from error
    finally:
        sys.dont_write_bytecode = previous_setting
        package, _ = locate_package(str(folder.resolve()))
        for name in sys.modules.keys() - known_modules:
            if name == package or name.startswith(f"{package}."):
                del sys.modules[name]
    for note in built.notes:
        report(note)
    report(f"{MANIFEST_FILE}: {pluralize(len(built.content['tools']), 'tool')}")
    return built


def write_file(file: Path, data: bytes, mode: int | None = None) -> bool:
    """Write a file atomically, with these permissions if given; return True if its content changed.

    Raises:
        ConfigError: the file cannot be written.
    """
    temp_path = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        if file.is_file() and file.read_bytes() == data:
            return False
        temp_path.touch(0o666 if mode is None else mode)
        temp_path.write_bytes(data)
        temp_path.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            temp_path.unlink()
        raise ConfigError(f"Cannot write {str(file)!r}: {error.strerror}.") from error
    return True
