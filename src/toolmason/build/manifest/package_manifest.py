"""A package → the bytes of its manifest, the same on every machine.

Lives here: which modules are looked into, what goes into the file, what is left out and said so, writing it.
Not here: what counts as a tool (`_core.members`), or reading a manifest (`_core.manifest`).
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from toolmason._core.catalog.catalog import Catalog, ToolSource, refuse_builtin_name
from toolmason._core.catalog.discovery import declared_in
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.tool import Tool
from toolmason._core.load.json_forms import Form, definition_form, options_form
from toolmason._core.load.manifest import FILE, FORMAT, VERSION
from toolmason._core.load.members import Member, is_marked, load_module, settled
from toolmason._core.load.packages import Home, homes_of, modules_under, source_hash
from toolmason._core.remote.protocol import RemoteSource
from toolmason.errors import ConfigError, DefinitionError, ToolmasonError


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A manifest that was made, and where it belongs."""

    form: Form
    data: bytes
    """As it is written to the file."""
    file: Path

    @property
    def notes(self) -> list[str]:
        """What the package has that a manifest cannot hold."""
        return list(self.form["notes"])


@contextlib.contextmanager
def importing_from(folder: Path | None) -> Generator[None]:
    """Look for modules in a folder first, for as long as this lasts."""
    places = [] if folder is None else [str(folder)]
    sys.path[:0] = places
    try:
        yield
    finally:
        for place in places:
            sys.path.remove(place)


def locate(target: str) -> tuple[str, Path | None]:
    """Return the package that a target names and the folder to import it from; a target is a name or a folder.

    Raises:
        ConfigError: a folder that is no package.
    """
    path = Path(target)
    if "/" not in target and os.sep not in target and not path.is_dir():
        return target, Path.cwd()
    if not path.is_dir():
        raise ConfigError(f"There is no folder {target!r}. Give a package's name, or its folder.")
    folder = path.resolve()
    parts = [folder.name]
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
        parts.insert(0, folder.name)
    return ".".join(parts), folder.parent


def build(package: str, exclude: Sequence[str] = ()) -> Built:
    """Import every module of a package and return its manifest. Modules that match a pattern are not looked into.

    Raises:
        ConfigError: the package cannot be found, written to or imported.
        DuplicateTool: two tools of the package have one name; names both.
        DefinitionError: a tool that cannot be built as written.
    """
    home = _only_home(package)
    notes: list[str] = []
    modules: list[ModuleType] = []
    for name, _ in modules_under(home):
        if any(fnmatchcase(name, pattern) for pattern in exclude):
            continue
        if name.endswith(".__main__"):
            if b"toolmason" in (home.source_of(name) or b""):
                notes.append(f"{name}: not looked into, because importing it runs the program")
            continue
        modules.append(load_module(name))
    members = _made(settled(modules), notes)
    form = _form(home, members, notes)
    owners = [member.owner for found in members.values() for member, _ in found if member.owner is not None]
    for module in modules:
        notes.extend(_omissions(module, owners))
        marked = list(_marked(module))
        notes.extend(f"{place}: marked with @supported_for, so it is not listed" for place in marked)
        form["partial"] = form["partial"] or bool(marked)
    form["notes"] = sorted(set(notes))
    return Built(form, _bytes_of(form), Path(home.folder) / FILE)


def _only_home(package: str) -> Home:
    homes = homes_of(package)
    if len(homes) != 1:
        places = ", ".join(repr(home.folder) for home in homes)
        raise ConfigError(
            f"{package!r} is a namespace package in {len(homes)} folders ({places}). "
            "Build the packages in it one by one: `toolmason build package.inner`."
        )
    if homes[0].get_data is not None or not Path(homes[0].folder).is_dir():
        raise ConfigError(f"{package!r} is in an archive ({homes[0].folder!r}). Build it where its source is.")
    return homes[0]


Made: TypeAlias = dict[str, list[tuple[Member, Tool | Prompt]]]
"""The tools and prompts of each module."""


def _made(members: dict[str, list[Member]], notes: list[str]) -> Made:
    made: Made = {}
    bundles: dict[type, Any] = {}
    broken: set[type] = set()
    for module in sorted(members):
        for member in members[module]:
            if member.of_class and member.owner in broken:
                continue
            try:
                made.setdefault(module, []).append((member, member.build(bundles)))
            except ToolmasonError:
                raise
            except (Exception, SystemExit) as error:
                if not member.of_class:
                    raise
                broken.add(member.owner)
                place = f"{module}:{member.owner.__name__}"
                notes.append(f"{place}: its tools are not listed, because making an object of it needs more: {error}")
    return {module: found for module, found in made.items() if found}


def _form(home: Home, members: Made, notes: list[str]) -> Form:
    catalog, paths = Catalog(), {}
    for module in sorted(members):
        for member, item in members[module]:
            if isinstance(item, Tool):
                refuse_builtin_name(item)
            catalog.add(item)
            paths[id(item)] = f"{module}:{member.qualname}"
    prompts = sorted(catalog.prompts.values(), key=lambda prompt: prompt.name)
    return {
        "format": FORMAT,
        "modules": {module: _hash_of(home, module, notes) for module in sorted(members)},
        "notes": [],
        "package": home.package,
        "partial": False,
        "prompts": [_prompt_form(prompt, paths[id(prompt)]) for prompt in prompts],
        "tools": [_tool_form(tool, paths[id(tool)], home, notes) for tool in catalog],
        "version": VERSION,
    }


def _hash_of(home: Home, module: str, notes: list[str]) -> str | None:
    source = home.source_of(module)
    if source is None:
        notes.append(f"{module}: has no Python source, so that a change of it will not be noticed")
        return None
    return source_hash(source)


def _tool_form(tool: Tool, path: str, home: Home, notes: list[str]) -> Form:
    options, lost = options_form(tool.options)
    notes.extend(f"{path}: meta[{key!r}] has no JSON form, so it is not listed before loading" for key in lost)
    if str(Path(home.folder).parent) in json.dumps(definition_form(tool.definition)):
        notes.append(f"{path}: its definition holds a path of the machine that built it")
    return dict(sorted({**definition_form(tool.definition), "options": options, "path": path}.items()))


def _prompt_form(prompt: Prompt, path: str) -> Form:
    return {
        "description": prompt.description,
        "input_schema": prompt.input_schema,
        "name": prompt.name,
        "path": path,
        "role": prompt.role,
    }


def _bytes_of(form: Form) -> bytes:
    # Keys of ours are in order. Within a schema they stay as written: the order of parameters is what a model
    # reads, and it is the same wherever the source is.
    # One line for each entry: a change is a line in a diff, and a third less is read at every start.
    try:
        parts = (f"{_line(key)}: {_lines(value)}" for key, value in form.items())
        return ("{\n" + ",\n".join(parts) + "\n}\n").encode()
    except ValueError as error:
        wrong = next((f"tool {item['name']!r}" for item in form["tools"] if not _is_plain(item)), "the manifest")
        raise DefinitionError(f"{wrong} cannot be written as JSON: {error}. Change its default or example.") from error


def _lines(value: Any) -> str:
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join(f"{_line(key)}: {_line(item)}" for key, item in value.items()) + "\n}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(map(_line, value)) + "\n]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _is_plain(form: Any) -> bool:
    try:
        json.dumps(form, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return False
    return True


# --- what is left out --------------------------------------------------------------------------


def _omissions(module: ModuleType, owners: Sequence[Any]) -> Iterator[str]:
    """Say what a module has that a manifest cannot hold."""
    for name, item in vars(module).items():
        place = f"{module.__name__}:{name}"
        if isinstance(item, type):
            names = [*declared_in(item, "tool"), *declared_in(item, "prompt")]
            hidden = name.startswith("_") or inspect.isabstract(item)
            if hidden and item.__module__ == module.__name__ and names and not any(_is_of(o, item) for o in owners):
                yield f"{place}: a class that is private or abstract; its tools are not listed: {_shown(names)}"
        elif isinstance(item, RemoteSource):
            yield f"{place}: a {type(item).__name__}; the tools of a server are not listed"
        elif isinstance(item, ToolSource) and not isinstance(item, Tool):
            held = _shown(_names_in(item))
            yield f"{place}: a {type(item).__name__}; what it adds to its tools is code and not listed: {held}"


def _marked(module: ModuleType) -> Iterator[str]:
    """Yield what of a module is for some applications only."""
    if is_marked(module):
        yield module.__name__
    for name, item in vars(module).items():
        written = getattr(item, "__module__", module.__name__) == module.__name__
        if written and not isinstance(item, ModuleType):
            kind = item if isinstance(item, type) else type(item)
            methods = [*declared_in(kind, "tool").items(), *declared_in(kind, "prompt").items()]
            yield from ([f"{module.__name__}:{name}"] if is_marked(item) else [])
            yield from (f"{module.__name__}:{name}.{method}" for method, (raw, _) in methods if is_marked(raw))


def _names_in(source: ToolSource) -> list[str]:
    try:
        return [tool.name for tool in source.__tools__()]
    except Exception:  # noqa: BLE001 - a source is foreign code, and this is only a note about it
        return []


def _is_of(owner: Any, cls: type) -> bool:
    return issubclass(owner if isinstance(owner, type) else type(owner), cls)


def _shown(names: Iterable[str], most: int = 10) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f"{', '.join(listed[:most]) or 'none'}{more}"


# --- the file ----------------------------------------------------------------------------------


def build_at(target: str, exclude: Sequence[str] = ()) -> Built:
    """Build the manifest of a package that is named, or whose folder is."""
    package, folder = locate(target)
    with importing_from(folder):
        built = build(package, exclude)
    if folder is not None and target != package and not _is_within(built.file, Path(target)):
        raise ConfigError(
            f"Python finds {package!r} at {str(built.file.parent)!r}, not at {target!r}. "
            "Uninstall the other one, or build it there."
        )
    return built


def build_for_wheel(folder: Path, exclude: Sequence[str], *, tell: Callable[[str], object]) -> Built:
    """Build the manifest of a package that is about to be packed; nothing is left behind in its folder.

    Raises:
        ConfigError: it cannot be imported, for which all that it imports must be there.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    known = set(sys.modules)
    try:
        built = build_at(str(folder.resolve()), exclude)
    except ConfigError as error:
        raise ConfigError(
            f"{error} A build imports the package: name what it needs in `[build-system] requires`, "
            "or leave modules out with `exclude`."
        ) from error
    finally:
        sys.dont_write_bytecode = before
        package, _ = locate(str(folder.resolve()))
        for name in sys.modules.keys() - known:
            if name == package or name.startswith(f"{package}."):
                del sys.modules[name]
    for note in built.notes:
        tell(note)
    tell(f"{FILE}: {len(built.form['tools'])} tools")
    return built


def _is_within(file: Path, folder: Path) -> bool:
    return file.parent.resolve() == folder.resolve()


def write_file(file: Path, data: bytes) -> bool:
    """Write a file, whole or not at all; tell whether it changed.

    Raises:
        ConfigError: it cannot be written.
    """
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        if file.is_file() and file.read_bytes() == data:
            return False
        beside.write_bytes(data)
        beside.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise ConfigError(f"{str(file)!r} cannot be written: {error.strerror}.") from error
    return True


__all__ = ["Built", "build", "build_at", "build_for_wheel", "importing_from", "locate", "write_file"]
