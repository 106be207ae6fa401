"""Read a package's manifest, `_toolmason.json`, so that its tools are listed at once and imported at their first call.

A manifest may only name modules of its own package, and only declared tools are loaded. Policy comes from the tool.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from pydantic_core import from_json

from toolmason._core.catalog.discovery import import_module
from toolmason._core.catalog.prompts import Prompt, RenderPrompt
from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import LazyTool, Tool, load_tool
from toolmason._core.load.instances import Instances
from toolmason._core.load.json_forms import (
    SAFETY_OPTIONS,
    JsonObject,
    dump_options,
    get_object,
    get_text,
    load_definition,
    load_options,
    wraps_result,
)
from toolmason._core.load.members import Member, ToolOrPrompt, deduplicate_members, iter_module_members
from toolmason._core.load.packages import (
    PackageLocation,
    find_module_spec,
    find_package_locations,
    hash_source,
    make_package_location,
)
from toolmason._core.values.definition import ToolDefinition, ToolOptions
from toolmason._core.values.messages import Message
from toolmason._core.values.policy import EngineSettings
from toolmason._core.values.results import Arguments
from toolmason._wire import pause_garbage_collection
from toolmason.errors import ConfigError, StaleManifest, ToolmasonError, clip

MANIFEST_FILE: Final = "_toolmason.json"
MANIFEST_FORMAT: Final = "toolmason-manifest"
MANIFEST_VERSION: Final = 1
MAX_MANIFEST_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a manifest. One tool takes about one thousand bytes."""

_NO_OPTIONS: Final = ToolOptions()
_EMPTY_OBJECT: Final[JsonObject] = {}


class ManifestEntry(NamedTuple):
    """One tool or prompt of a manifest."""

    kind: ToolOrPrompt
    module: str
    qualname: str
    data: JsonObject
    """The entry as stored in the file."""

    @property
    def path(self) -> str:
        """The import path."""
        return f"{self.module}:{self.qualname}"

    @property
    def owner_path(self) -> str:
        """The import path of the class or object that it is a method of; its own path for a function."""
        return f"{self.module}:{self.qualname.partition('.')[0]}"

    @property
    def name(self) -> str:
        """The name of the tool or prompt."""
        return str(self.data["name"])

    @property
    def options(self) -> JsonObject:
        """The options as stored in the file."""
        return self.data.get("options", {})  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """The validated contents of a manifest."""

    package: str
    classes: Mapping[str, list[str]]
    """Required constructor arguments of each class whose tools need an instance, by `module:Class`."""
    modules: Mapping[str, str | None]
    """Source hash of each module that has tools; `None` if its source is unavailable."""
    entries: tuple[ManifestEntry, ...]
    notes: tuple[str, ...]
    """Parts of the package that a manifest cannot contain."""
    place: str
    """Origin of the manifest, for error messages."""
    partial: bool = False
    """True if the package has application-specific tools, which are not listed."""

    def needs_given_instance(self, entry: ManifestEntry) -> bool:
        """Return True if the application must give the instance that a tool or prompt belongs to."""
        return bool(self.classes.get(entry.owner_path))


def parse_manifest(text: bytes, place: str) -> Manifest:
    """Parse a manifest.

    Raises:
        ConfigError: it is damaged, of another version, or has invalid content; names the part.
    """
    with pause_garbage_collection():
        return _make_manifest(_load_document(text, place), place)


def _make_manifest(document: JsonObject, place: str) -> Manifest:
    package = get_text(document, "package", place)
    if not all(part.isidentifier() for part in package.split(".")):
        raise ConfigError(f"{place}: 'package' is {clip(package)!r}, which is not a package name. Rebuild the file.")
    modules = get_object(document, "modules", place)
    for module, digest in modules.items():
        if module != package and not module.startswith(f"{package}."):
            raise ConfigError(f"{place}: {clip(module)!r} is not a module of {package!r}. Rebuild the file.")
        if digest is not None and not isinstance(digest, str):
            raise ConfigError(f"{place}: the hash of {clip(module)!r} is not a string. Rebuild the file.")
    classes = get_object({"classes": {}, **document}, "classes", place)
    for path, required in classes.items():
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise ConfigError(f"{place}: the arguments of {clip(path)!r} must be a list of names. Rebuild the file.")
    entries = [
        _parse_entry(kind, item, modules, place)
        for kind, key in _ENTRY_LISTS
        for item in _get_list(document, key, place)
    ]
    notes = tuple(str(note) for note in _get_list(document, "notes", place))
    return Manifest(package, classes, modules, tuple(entries), notes, place, partial=document.get("partial") is True)


_ENTRY_LISTS: Final[tuple[tuple[ToolOrPrompt, str], ...]] = (("tool", "tools"), ("prompt", "prompts"))


def _load_document(text: bytes, place: str) -> JsonObject:
    if len(text) > MAX_MANIFEST_BYTES:
        raise ConfigError(f"{place} has {len(text)} bytes; the maximum is {MAX_MANIFEST_BYTES}. Split the package.")
    try:
        document = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ConfigError(f"{place} is not valid JSON: {error}. Run `toolmason build` again.") from error
    if not isinstance(document, dict) or document.get("format") != MANIFEST_FORMAT:
        raise ConfigError(
            f'{place} is not a manifest: it lacks "format": "{MANIFEST_FORMAT}". Write one with `toolmason build`. An '
            'MCP configuration has its servers under "mcpServers".'
        )
    if document.get("version") != MANIFEST_VERSION:
        raise ConfigError(
            f"{place} has manifest version {clip(repr(document.get('version')))}, but this toolmason reads "
            f"version {MANIFEST_VERSION}. Run `toolmason build` again with this toolmason."
        )
    return document


def _get_list(document: JsonObject, key: str, place: str) -> list[Any]:
    value = document.get(key, [])
    if not isinstance(value, list):
        raise ConfigError(f"{place}: {key!r} must be a list, not {clip(repr(value))}. Rebuild the file.")
    return value


def _parse_entry(kind: ToolOrPrompt, data: Any, modules: Mapping[str, Any], place: str) -> ManifestEntry:
    if type(data) is not dict:
        raise ConfigError(f"{place}: a {kind} must be an object, not {clip(repr(data))}. Rebuild the file.")
    get = data.get
    path = get("path")
    if type(path) is str and type(get("name")) is str and type(get("options", _EMPTY_OBJECT)) is dict:
        module, _, qualname = path.partition(":")
        if module in modules and qualname.replace(".", "", 1).isidentifier():
            return ManifestEntry(kind, module, qualname, data)
    location = f"{place}: {kind} {clip(get_text(data, 'name', place))!r}"
    get_object({"options": {}, **data}, "options", location)
    raise ConfigError(
        f"{location}: {clip(get_text(data, 'path', location))!r} is not the path of a {kind} in a module that "
        "the manifest lists. Rebuild the file."
    )


# --- finding the file --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class LoadedManifest:
    """The manifest of a package and the package's location: a source of tools for a toolbox."""

    manifest: Manifest
    location: PackageLocation
    instances: Instances = field(default_factory=lambda: Instances(None))

    def __tools__(self) -> Iterator[Tool | Prompt]:
        """Yield the listed items. Those of a module that has changed since are read from the module itself."""
        stale, gone = self._find_changed_modules()
        changed = stale | gone
        self.instances.refuse_unknown(self.manifest.classes, changed, self.manifest.place)
        entries = [entry for entry in self.manifest.entries if entry.module not in changed]
        with pause_garbage_collection():
            lazy_items = [self._make_lazy(entry) for entry in self._select_entries(entries)]
        yield from lazy_items
        for module in sorted(gone):
            _warn_stale(f"module {module!r} of {self.manifest.place} no longer exists, so its tools are omitted")
        if stale:
            yield from self._iter_changed_items(stale, {(isinstance(item, Prompt), item.name) for item in lazy_items})

    def without_missing_instances(self) -> LoadedManifest:
        """Return a manifest without the tools whose instance only an application could give."""
        entries = tuple(entry for entry in self.manifest.entries if not self._lacks_instance(entry))
        return replace(self, manifest=replace(self.manifest, entries=entries))

    def _lacks_instance(self, entry: ManifestEntry) -> bool:
        return self.manifest.needs_given_instance(entry) and entry.owner_path not in self.instances

    def _select_entries(self, entries: list[ManifestEntry]) -> list[ManifestEntry]:
        """Omit a tool whose instance is missing if another has its name: the application chose the other class."""
        if not self.manifest.classes:
            return entries
        ordered = sorted(entries, key=self._lacks_instance)
        taken_names: set[tuple[ToolOrPrompt, str]] = set()
        selected: list[ManifestEntry] = []
        for entry in ordered:
            if (entry.kind, entry.name) not in taken_names or not self._lacks_instance(entry):
                selected.append(entry)
            taken_names.add((entry.kind, entry.name))
        return selected

    # --- modules that have changed ---------------------------------------------------------

    def _find_changed_modules(self) -> tuple[set[str], set[str]]:
        """Return the modules whose source differs from the manifest, and those that no longer exist."""
        stale, gone = set[str](), set[str]()
        for module, expected_hash in self.manifest.modules.items():
            source = self.location.read_source(module)
            if source is None:
                # An installation may contain only bytecode, and a copy of a manifest lists an absent package.
                if find_module_spec(module) is None and find_module_spec(self.manifest.package) is not None:
                    gone.add(module)
            elif expected_hash is not None and hash_source(source) != expected_hash:
                stale.add(module)
        return stale, gone

    def _iter_changed_items(self, stale: set[str], taken_names: set[tuple[bool, str]]) -> Iterator[Tool | Prompt]:
        """Yield the items of changed modules. One that cannot be used is omitted: a program starts without it."""
        place = self.manifest.place
        for module in sorted(stale):
            _warn_stale(f"the source of {module!r} has changed since {place} was written, so it is imported")
            try:
                self._import_module(module)
            except ConfigError as error:
                _warn_stale(f"the tools of {module!r} are omitted: {str(error).rstrip('.')}")
        # A changed module may import members that another module of the package owns.
        loaded = [sys.modules[module] for module in self.manifest.modules if module in sys.modules]
        for module, members in deduplicate_members(loaded).items():
            for member in members if module in stale else ():
                path = f"{module}:{member.qualname}"
                try:
                    item = self._make_changed(member, module)
                except ToolmasonError as error:
                    _warn_stale(f"{path!r} is omitted: {str(error).rstrip('.')}")
                    continue
                key = (isinstance(item, Prompt), item.name)
                if key not in taken_names:
                    taken_names.add(key)
                    yield item
                elif not member.is_of_class:
                    # A class that another one extends is omitted, but unloaded classes are unknown here: no warning.
                    _warn_stale(f"{path!r} is omitted, because {item.name!r} is listed already")

    def _make_changed(self, member: Member, module: str) -> Tool | Prompt:
        described = member.describe()
        if not member.needs_instance:
            return described

        def load() -> Tool | Prompt:
            return self._build_member(member, module)

        if isinstance(described, Prompt):
            return replace(described, render_messages=_render_with(load))
        tool = LazyTool(described.definition, described.options, described.origin, cast("Callable[[], Tool]", load))
        tool.wraps_result = wraps_result(described)
        return tool

    def _make_lazy(self, entry: ManifestEntry) -> Tool | Prompt:
        place = self.manifest.place
        origin = f"{entry.path} ({place})"
        if entry.kind == "prompt":
            return self._make_lazy_prompt(entry, origin)
        definition = load_definition(entry.data, place)
        tool = LazyTool(definition, _NO_OPTIONS, origin, lambda: self._load_tool(entry, definition))
        if "wrapped" in entry.data:
            tool.wraps_result = entry.data["wrapped"] is not False
        if entry.options:
            tool.options = self._load_options(entry, tool)
        return tool

    def _make_lazy_prompt(self, entry: ManifestEntry, origin: str) -> Prompt:
        data, place = entry.data, self.manifest.place
        role: Any = data.get("role", "user")
        if role not in ("user", "assistant", "system"):
            raise ConfigError(
                f"{place}: prompt {data['name']!r} has the invalid role {clip(repr(role))}. Rebuild the file."
            )
        description, schema = get_text(data, "description", place), get_object(data, "input_schema", place)
        render = _render_with(lambda: self._load_entry(entry))
        return Prompt(data["name"], description, schema, role, origin, render)

    def _load_options(self, entry: ManifestEntry, tool: LazyTool) -> ToolOptions:
        def make_placeholder(option: str) -> Any:
            return lambda *given: getattr(load_tool(tool).options, option)(*given)  # noqa: PLW0108 - loads when called

        return load_options(entry.options, make_placeholder, f"{self.manifest.place}: tool {clip(entry.name)!r}")

    # --- loading ---------------------------------------------------------------------------

    def _load_entry(self, entry: ManifestEntry) -> Tool | Prompt:
        module = self._import_module(entry.module)
        member = next(
            (m for m in iter_module_members(module) if m.qualname == entry.qualname and m.kind == entry.kind), None
        )
        if member is None:
            raise ConfigError(
                f"{entry.path!r} is not a {entry.kind}. Decorate it with `@{entry.kind}`, "
                "or run `toolmason build` again."
            )
        built = self._build_member(member, entry.module)
        if built.name != entry.name:
            raise ConfigError(
                f"{entry.path!r} is named {built.name!r}, but {self.manifest.place} lists it as {entry.name!r}. "
                "Run `toolmason build` again."
            )
        return built

    def _build_member(self, member: Member, module: str) -> Tool | Prompt:
        path = f"{module}:{member.qualname.partition('.')[0]}"
        return member.build(lambda cls: self.instances.get(cls, path))

    def _load_tool(self, entry: ManifestEntry, definition: ToolDefinition) -> Tool:
        tool = self._load_entry(entry)
        assert isinstance(tool, Tool)  # noqa: S101 - the kind was checked
        listed_options = entry.options
        real_options, _ = dump_options(tool.options)
        if wrong := [name for name in SAFETY_OPTIONS if listed_options.get(name) != real_options.get(name)]:
            raise ConfigError(
                f"{entry.path!r} has {wrong[0]}={real_options.get(wrong[0])!r}, but {self.manifest.place} lists it "
                f"with {wrong[0]}={listed_options.get(wrong[0])!r}. It was not run. Run `toolmason build` again."
            )
        if tool.definition.digest != definition.digest or listed_options != real_options:
            _warn_stale(f"{entry.path!r} differs from {self.manifest.place}; the code is used")
        return tool

    def _import_module(self, module: str) -> Any:
        folders = [location.folder for location in find_package_locations(self.manifest.package)]
        # Resolve links, because an editable installation may be reachable by two paths.
        if os.path.realpath(self.location.folder) not in map(os.path.realpath, folders):
            raise ConfigError(
                f"{self.manifest.place} is not in the package {self.manifest.package!r} that Python imports, which is "
                f"at {folders[0]!r}. Pass the package name, or add the folder above the package to `sys.path`."
            )
        return import_module(module, module, "Reinstall the package, or run `toolmason build`.")


def _render_with(load: Callable[[], Tool | Prompt]) -> RenderPrompt:
    """Return a function that renders a prompt, loaded when it is first rendered."""
    load_once = functools.cache(load)

    async def render(arguments: Arguments, context: ToolContext[Any], settings: EngineSettings) -> list[Message]:
        prompt = load_once()
        assert isinstance(prompt, Prompt)  # noqa: S101 - the kind was checked
        return await prompt.render(arguments, context, settings)

    return render


def _warn_stale(message: str) -> None:
    # Attribute the warning to the first caller outside of this package.
    stack_level = 1
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("toolmason."):
        stack_level += 1
        frame = frame.f_back
    warnings.warn(StaleManifest(f"{message}. Run `toolmason build` to update it."), stacklevel=stack_level)


def find_manifest(source: str | Path, instances: Mapping[Any, Any] | None = None) -> LoadedManifest:
    """Find the manifest of a package by package name, file path or folder; `instances` has those of its classes.

    Raises:
        ConfigError: there is none, there are several, or it is invalid.
    """
    text = str(source)
    if isinstance(source, Path) or text.endswith(".json") or "/" in text or os.sep in text:
        return _read_manifest_at(Path(source), Instances(instances))
    candidates = [
        (location, data)
        for location in find_package_locations(text)
        if (data := location.read(MANIFEST_FILE)) is not None
    ]
    if not candidates:
        raise ConfigError(f"The package {text!r} has no manifest. Create one with `toolmason build {text}`.")
    if len(candidates) > 1:
        places = " and ".join(repr(location.folder) for location, _ in candidates)
        raise ConfigError(f"The package {text!r} has more than one manifest: {places}. Pass the path of one.")
    [(location, data)] = candidates
    manifest = parse_manifest(data, f"the manifest of {text!r}")
    if manifest.package != text:
        raise ConfigError(f"The manifest in {text!r} is for the package {manifest.package!r}. Rebuild it.")
    return LoadedManifest(manifest, location, Instances(instances))


def has_manifest(package: str) -> bool:
    """Return True if the package exists and has a manifest, without importing anything."""
    try:
        return any(location.read(MANIFEST_FILE) is not None for location in find_package_locations(package))
    except (ConfigError, OSError):
        return False


def _read_manifest_at(path: Path, instances: Instances) -> LoadedManifest:
    file = path / MANIFEST_FILE if path.is_dir() else path
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"No manifest at {str(file)!r}: {error.strerror}. Check the path, or run `toolmason build`."
        ) from error
    manifest = parse_manifest(data, repr(str(file)))
    location = make_package_location(manifest.package, str(file.resolve().parent))
    return LoadedManifest(manifest, location, instances)
