"""`_toolmason.json`, the manifest of a package → tools that are listed at once and loaded at their first call.

Lives here: reading and checking a manifest, noticing that it is out of date, loading what it names. It names only
modules of its own package, and only what is declared as a tool there is ever loaded; policy comes from the tool
itself. Not here: writing one (`toolmason.build.manifest.package_manifest`).
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import sys
import warnings
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

from toolmason._core.catalog.lazy import Listed, ListedPrompt, PromptListing
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.tool import Tool
from toolmason._core.load.json_forms import SAFETY, Form, definition_from, object_in, options_form, options_in, text_in
from toolmason._core.load.members import Kind, Member, load_module, members_of, settled
from toolmason._core.load.packages import Home, home_at, homes_of, source_hash
from toolmason._core.values.definition import ToolDefinition, ToolOptions
from toolmason.errors import ConfigError, StaleManifest, ToolmasonError, clip

FILE: Final = "_toolmason.json"
FORMAT: Final = "toolmason-manifest"
VERSION: Final = 1
LARGEST: Final = 64 * 1024 * 1024
"""Bytes of a manifest; one tool takes about one thousand."""

_NO_OPTIONS: Final = ToolOptions()
_NOTHING: Final[Form] = {}


class Entry(NamedTuple):
    """One tool or prompt of a manifest."""

    kind: Kind
    module: str
    qualname: str
    form: Form
    """As the file has it."""

    @property
    def path(self) -> str:
        """Its import path."""
        return f"{self.module}:{self.qualname}"

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self.form["name"])

    @property
    def options(self) -> Form:
        """Its options, as the file has them."""
        return self.form.get("options", {})  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """What a manifest says, checked."""

    package: str
    modules: Mapping[str, str | None]
    """Each module that has tools → the hash of its source; `None` for one that has none to hash."""
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]
    """What the package has that a manifest cannot hold."""
    place: str
    """Where it was read, for messages."""
    partial: bool = False
    """Whether the package has tools for some applications only, which are not listed."""


def parse_manifest(text: bytes, place: str) -> Manifest:
    """Read a manifest.

    Raises:
        ConfigError: it is damaged, of another version, or says what a manifest must not say; names the part.
    """
    with _no_collecting():
        return _parsed(_document(text, place), place)


def _parsed(form: Form, place: str) -> Manifest:
    package = text_in(form, "package", place)
    if not all(part.isidentifier() for part in package.split(".")):
        raise ConfigError(f"{place}: 'package' is {clip(package)!r}, which is no package. Build the file again.")
    modules = object_in(form, "modules", place)
    for module, digest in modules.items():
        if module != package and not module.startswith(f"{package}."):
            raise ConfigError(f"{place}: {clip(module)!r} is not a module of {package!r}. Build the file again.")
        if digest is not None and not isinstance(digest, str):
            raise ConfigError(f"{place}: the hash of {clip(module)!r} is not a text. Build the file again.")
    entries = [_entry(kind, item, modules, place) for kind, key in _LISTS for item in _list_in(form, key, place)]
    notes = tuple(str(note) for note in _list_in(form, "notes", place))
    return Manifest(package, modules, tuple(entries), notes, place, partial=form.get("partial") is True)


_LISTS: Final[tuple[tuple[Kind, str], ...]] = (("tool", "tools"), ("prompt", "prompts"))


def _document(text: bytes, place: str) -> Form:
    if len(text) > LARGEST:
        raise ConfigError(f"{place} has {len(text)} bytes; a manifest has at most {LARGEST}. Split the package.")
    try:
        form = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ConfigError(f"{place} is not JSON: {error}. Run `toolmason build` again.") from error
    if not isinstance(form, dict) or form.get("format") != FORMAT:
        raise ConfigError(f'{place} is not a manifest: it does not say "format": "{FORMAT}".')
    if form.get("version") != VERSION:
        raise ConfigError(
            f"{place} is a manifest of version {clip(repr(form.get('version')))}, and this is toolmason with "
            f"version {VERSION}. Run `toolmason build` again with the toolmason that reads it."
        )
    return form


@contextlib.contextmanager
def _no_collecting() -> Generator[None]:
    """Keep the garbage collector still while a list is made.

    All that is made is kept, so that every look for garbage is wasted: a third of the time that a thousand tools take.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _list_in(form: Form, key: str, place: str) -> list[Any]:
    found = form.get(key, [])
    if not isinstance(found, list):
        raise ConfigError(f"{place}: {key!r} must be a list, not {clip(repr(found))}. Build the file again.")
    return found


def _entry(kind: Kind, form: Any, modules: Mapping[str, Any], place: str) -> Entry:
    if type(form) is not dict:
        raise ConfigError(f"{place}: a {kind} must be an object, not {clip(repr(form))}. Build the file again.")
    get = form.get
    path = get("path")
    if type(path) is str and type(get("name")) is str and type(get("options", _NOTHING)) is dict:
        module, _, qualname = path.partition(":")
        if module in modules and qualname.replace(".", "", 1).isidentifier():
            return Entry(kind, module, qualname, form)
    where = f"{place}: {kind} {clip(text_in(form, 'name', place))!r}"
    object_in({"options": {}, **form}, "options", where)
    raise ConfigError(
        f"{where}: {clip(text_in(form, 'path', where))!r} is not the path of a {kind} in a module that the manifest "
        "names. Build the file again."
    )


# --- finding the file --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Shelf:
    """The manifest of a package and where the package is: a source of tools for a toolbox."""

    manifest: Manifest
    home: Home
    bundles: dict[type, Any] = field(default_factory=dict)
    """Objects of classes whose tools were loaded, one for each class."""

    def __tools__(self) -> Iterator[Tool | Prompt]:
        """Yield what is listed; the tools of a module that has changed since come from the module itself."""
        stale = {module for module in self.manifest.modules if self._is_stale(module)}
        with _no_collecting():
            listed = [self._listed(entry) for entry in self.manifest.entries if entry.module not in stale]
        yield from listed
        for module in sorted(stale):
            _warn(f"the source of {module!r} has changed since {self.manifest.place} was written, so it is imported")
            self._imported(module)
        # A changed module may have what another module of the package holds, and imports here.
        loaded = [sys.modules[module] for module in self.manifest.modules if module in sys.modules] if stale else []
        taken = {entry.name for entry in self.manifest.entries if entry.module not in stale}
        for module, members in settled(loaded).items():
            if module in stale:
                built = [(member, self._made(member, module)) for member in members]
                # Of a class it cannot be told here whether one in a module that is not loaded extends it.
                yield from (item for member, item in built if not (member.of_class and item.name in taken))

    def _is_stale(self, module: str) -> bool:
        source = self.home.source_of(module)
        wanted = self.manifest.modules[module]
        # Without a source there is nothing to compare: an installation may have byte code alone.
        return source is not None and wanted is not None and source_hash(source) != wanted

    def _listed(self, entry: Entry) -> Tool | Prompt:
        place = self.manifest.place
        origin = f"{entry.path} ({place})"
        if entry.kind == "prompt":
            return ListedPrompt(_prompt_listing(entry.form, place), origin, lambda: self._load_prompt(entry))
        definition = definition_from(entry.form, place)
        tool = Listed(definition, _NO_OPTIONS, origin, lambda: self._load_tool(entry, definition))
        if entry.options:
            tool.options = self._options(entry, tool)
        return tool

    def _options(self, entry: Entry, tool: Listed) -> ToolOptions:
        def stand_in(option: str) -> Any:
            return lambda *given: getattr(tool.ready().options, option)(*given)  # noqa: PLW0108 - loads when called

        return options_in(entry.options, stand_in, f"{self.manifest.place}: tool {clip(entry.name)!r}")

    # --- loading ---------------------------------------------------------------------------

    def _load(self, entry: Entry) -> Tool | Prompt:
        module = self._imported(entry.module)
        member = next((m for m in members_of(module) if m.qualname == entry.qualname and m.kind == entry.kind), None)
        if member is None:
            raise ConfigError(
                f"{entry.path!r} is not a {entry.kind}, or not any more. Declare it with `@{entry.kind}`, "
                "or run `toolmason build` again."
            )
        built = self._made(member, entry.module)
        if built.name != entry.name:
            raise ConfigError(
                f"{entry.path!r} is named {built.name!r}, and {self.manifest.place} lists it as {entry.name!r}. "
                "Run `toolmason build` again."
            )
        return built

    def _made(self, member: Member, module: str) -> Tool | Prompt:
        try:
            return member.build(self.bundles)
        except ToolmasonError:
            raise
        except (Exception, SystemExit) as error:
            raise ConfigError(
                f"An object for {f'{module}:{member.qualname}'!r} cannot be made: {type(error).__name__}: {error}"
            ) from error

    def _load_prompt(self, entry: Entry) -> Prompt:
        loaded = self._load(entry)
        assert isinstance(loaded, Prompt)  # noqa: S101 - the kind was compared
        return loaded

    def _load_tool(self, entry: Entry, definition: ToolDefinition) -> Tool:
        tool = self._load(entry)
        assert isinstance(tool, Tool)  # noqa: S101 - the kind was compared
        listed, (real, _) = entry.options, options_form(tool.options)
        if wrong := [name for name in SAFETY if listed.get(name) != real.get(name)]:
            raise ConfigError(
                f"{entry.path!r} says {wrong[0]}={real.get(wrong[0])!r}, and {self.manifest.place} lists it with "
                f"{wrong[0]}={listed.get(wrong[0])!r}. It was not run. Run `toolmason build` again."
            )
        if tool.definition.digest != definition.digest or listed != real:
            _warn(f"{entry.path!r} is not as {self.manifest.place} lists it; it runs as it is written")
        return tool

    def _imported(self, module: str) -> Any:
        places = [home.folder for home in homes_of(self.manifest.package)]
        if not any(_same_folder(place, self.home.folder) for place in places):
            raise ConfigError(
                f"{self.manifest.place} is not in the package {self.manifest.package!r} that Python finds, which is at "
                f"{places[0]!r}. Give the name of the package, or put the folder above the manifest on `sys.path`."
            )
        return load_module(module)


def _prompt_listing(form: Form, place: str) -> PromptListing:
    role: Any = form.get("role", "assistant")
    if role not in ("user", "assistant", "system"):
        raise ConfigError(f"{place}: the role of prompt {form['name']!r} cannot be {clip(repr(role))}.")
    text, schema = text_in(form, "description", place), object_in(form, "input_schema", place)
    return PromptListing(form["name"], text, schema, role)


def _same_folder(first: str, second: str) -> bool:
    # Links are followed: an editable installation may be reached by two names.
    return os.path.realpath(first) == os.path.realpath(second)


def _warn(what: str) -> None:
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("toolmason."):
        level, frame = level + 1, frame.f_back
    warnings.warn(StaleManifest(f"{what}. Run `toolmason build` to bring it up to date."), stacklevel=level)


def find_manifest(source: str | Path) -> Shelf:
    """Find the manifest of a package, by the package's name or by the path of the file or its folder.

    Raises:
        ConfigError: there is none, there are several, or it cannot be used.
    """
    text = str(source)
    if isinstance(source, Path) or text.endswith(".json") or "/" in text or os.sep in text:
        return _at(Path(source))
    found = [(home, data) for home in homes_of(text) if (data := home.read(FILE)) is not None]
    if not found:
        raise ConfigError(f"The package {text!r} has no manifest. Write one with `toolmason build {text}`.")
    if len(found) > 1:
        places = " and ".join(repr(home.folder) for home, _ in found)
        raise ConfigError(f"The package {text!r} has more than one manifest: {places}. Give the path of one of them.")
    [(home, data)] = found
    manifest = parse_manifest(data, f"the manifest of {text!r}")
    if manifest.package != text:
        raise ConfigError(f"The manifest in {text!r} is of the package {manifest.package!r}. Build it again.")
    return Shelf(manifest, home)


def has_manifest(package: str) -> bool:
    """Tell whether a package can be found that has a manifest, without importing anything."""
    try:
        return any(home.read(FILE) is not None for home in homes_of(package))
    except (ConfigError, OSError):
        return False


def _at(path: Path) -> Shelf:
    file = path / FILE if path.is_dir() else path
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"There is no manifest at {str(file)!r}: {error.strerror}.") from error
    manifest = parse_manifest(data, repr(str(file)))
    return Shelf(manifest, home_at(manifest.package, str(file.resolve().parent)))
