"""Find tools and prompts in objects, classes and modules, and import `module:name` and file targets."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, TypeAlias

from toolmason._core.catalog.prompts import Prompt
from toolmason._core.catalog.resources import Resource
from toolmason._core.define.decorators import Declaration, get_declaration
from toolmason._core.define.signature import unwrap_function
from toolmason._core.define.tool import FunctionTool, Tool, make_tool
from toolmason._text import find_close_names, suggest_name
from toolmason.errors import ConfigError, DefinitionError, DuplicateTool

MemberKind: TypeAlias = Literal["tool", "prompt", "resource"]
_MEMBER_KINDS: Final[tuple[MemberKind, ...]] = ("tool", "prompt", "resource")
_PACKAGE: Final = Path(__file__).parents[2]
"""Folder of Toolmason: its lines are not the reason why a file cannot be loaded."""


def tools_from(source: Any) -> list[Tool]:
    """Return every tool of an object, class or module, in source order.

    A class provides its static and class methods. Inherited tools are included; an override keeps the metadata of
    the overridden method unless it is decorated again.

    Raises:
        DefinitionError: there are no tools, or a class has instance methods as tools; names them.
        DuplicateTool: two of them have the same name.
    """
    tools = [make_member_tool(item, declaration) for item, declaration in _iter_members(source, "tool")]
    if not tools:
        raise DefinitionError(
            f"No @tool found on {_describe_source(source)}. Decorate a function or method with `@tool`."
        )
    by_name: dict[str, Tool] = {}
    for tool in tools:
        if (first := by_name.setdefault(tool.name, tool)) is not tool:
            raise DuplicateTool(tool.name, first.origin, tool.origin)
    return tools


def find_prompts(source: Any) -> list[Prompt]:
    """Return every prompt of an object, class or module."""
    return [Prompt.from_function(item, declaration) for item, declaration in _iter_members(source, "prompt")]


def find_resources(source: Any) -> list[Resource]:
    """Return every resource of an object, class or module."""
    return [Resource(item, declaration) for item, declaration in _iter_members(source, "resource")]


def has_members(source: Any, *kinds: MemberKind) -> bool:
    """Return True if an object, class or module has tools, prompts or resources, or those of the given kinds."""
    return any(True for kind in kinds or _MEMBER_KINDS for _ in _iter_members(source, kind))


def make_member_tool(item: Any, declaration: Declaration) -> Tool:
    """Return the tool for a declared member. A method without a docstring inherits the overridden method's."""
    if isinstance(item, Tool):
        return item
    if declaration.description is None and not unwrap_function(item).__doc__ and (text := inspect.getdoc(item)):
        return FunctionTool(item, declaration, description=text)
    return make_tool(item, declaration)


def _iter_members(source: Any, kind: MemberKind) -> Iterator[tuple[Any, Declaration]]:
    if isinstance(source, ModuleType):
        yield from _iter_module_members(source, kind)
        return
    is_class = isinstance(source, type)
    declared = find_declared_members(source if is_class else type(source), kind)
    if is_class and (instance_methods := [name for name, (item, _) in declared.items() if not _is_static(item)]):
        raise DefinitionError(
            f"Class {source.__qualname__!r} has instance methods as {kind}s: {', '.join(instance_methods)}. "
            f"Pass an instance, `{source.__name__}(...)`, or make them static or class methods."
        )
    for name, (_, declaration) in declared.items():
        yield getattr(source, name), declaration


def _iter_module_members(module: ModuleType, kind: str) -> Iterator[tuple[Any, Declaration]]:
    seen: set[int] = set()
    for item in vars(module).values():
        if id(item) in seen or isinstance(item, type):
            continue
        seen.add(id(item))
        declared = Declaration("tool") if isinstance(item, Tool) else get_declaration(item)
        if declared is not None and (declaration := declared.find(kind)) is not None:
            yield item, declaration


def find_declared_members(cls: type, kind: str) -> dict[str, tuple[Any, Declaration]]:
    """Return the declared members of a class by name, starting with its most distant base class."""
    members: dict[str, tuple[Any, Declaration]] = {}
    for owner in reversed(cls.__mro__):
        for name, item in vars(owner).items():
            declared = get_declaration(item)
            declaration = None if declared is None else declared.find(kind)
            if declaration is not None:
                members[name] = (item, declaration)
            elif declared is not None or not (callable(item) or isinstance(item, staticmethod | classmethod)):
                members.pop(name, None)
            elif name in members:
                members[name] = (item, members[name][1])
    return members


def _is_static(item: Any) -> bool:
    return isinstance(item, staticmethod | classmethod)


def _describe_source(source: Any) -> str:
    if isinstance(source, ModuleType):
        return f"module {source.__name__!r}"
    kind = source if isinstance(source, type) else type(source)
    return f"{'class' if source is kind else 'an object of class'} {kind.__qualname__!r}"


def load_target(target: str) -> Any:
    """Load a target: `package.module`, `package.module:name`, `path/file.py` or `path/file.py:name`.

    Raises:
        ConfigError: it cannot be found or loaded; names the part and the reason.
    """
    module_path, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    if module_path.endswith(".py"):
        return _get_attribute(_load_file(Path(module_path), target), name, module_path, target)
    add_current_folder_to_path()
    return _get_attribute(load_module(module_path, target), name, module_path, target)


def import_target(target: str) -> Any:
    """Load `package.module` or `package.module:name` from Python's import path.

    Raises:
        ConfigError: it cannot be found or loaded; names the part and the reason.
    """
    module_path, _, name = target.partition(":")
    return _get_attribute(load_module(module_path, target), name, module_path, target)


def _get_attribute(module: ModuleType, name: str, module_path: str, target: str) -> Any:
    value: Any = module
    for part in name.split(".") if name else ():
        if not hasattr(value, part):
            hint = suggest_name(part, dir(value), "Check the name after the colon.")
            raise ConfigError(f"{target!r}: {module_path!r} has no {part!r}. {hint}")
        value = getattr(value, part)
    return value


def add_current_folder_to_path() -> None:
    """Make the modules of the current folder importable, as when Python runs a file there."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def load_module(name: str, target: str) -> ModuleType:
    """Import a module of the target.

    Raises:
        ConfigError: it does not exist, or importing it failed; names the reason.
    """
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"{target!r} is not a module path. Use `package.module:name` or `path/file.py:name`.")
    here = {path.stem for path in Path().glob("*") if path.suffix == ".py" or (path / "__init__.py").is_file()}
    hint = suggest_name(name, here, "Check the spelling, or run from the project's folder.")
    module, _, last = name.rpartition(".")
    if module in here and ":" not in target:
        hint = f"Did you mean {f'{module}:{last}'!r}?"
    return import_module(name, target, hint)


def import_module(name: str, target: str, missing_hint: str) -> ModuleType:
    """Import a module. `missing_hint` says what to do if it does not exist.

    Raises:
        ConfigError: it does not exist, or importing it failed; names the reason.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"{target!r}: module {error.name!r} not found. {missing_hint}") from error
        raise ConfigError(f"{target!r}: loading failed: {error}. Install the missing module.") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{target!r}: loading failed: {_describe_error(error)}") from error


def _describe_error(error: BaseException) -> str:
    """Return an error with its source line, because Toolmason's own traceback would hide it."""
    description = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    # The text of a SyntaxError already names the file and line.
    if isinstance(error, SyntaxError) or not frames:
        return description
    files = [frame for frame in frames if Path(frame.filename).is_absolute()]  # others are generated code
    last = next((frame for frame in reversed(files) if not Path(frame.filename).is_relative_to(_PACKAGE)), frames[-1])
    return f"{description} ({last.filename}:{last.lineno})"


def _load_file(path: Path, target: str) -> ModuleType:
    if not path.is_file():
        close = find_close_names(path.name, (other.name for other in path.parent.glob("*.py")), 1)
        hint = f"Did you mean {str(path.with_name(close[0]))!r}?" if close else "Check the path."
        raise ConfigError(f"{target!r}: file {str(path)!r} does not exist. {hint}")
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{target!r}: {str(path)!r} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    # Make sibling modules importable, as when Python runs the file.
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules.setdefault(name, module)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{target!r}: loading failed: {_describe_error(error)}") from error
    return module
