"""The instances of a manifest's classes: given by the application, or created when the first of its tools is loaded."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from toolmason._core.load.members import find_required_arguments
from toolmason.errors import ConfigError, ToolmasonError, clip


class Instances:
    """Instances of classes by path, `module:Class`. A given value is an instance, or a function that returns one."""

    def __init__(self, given: Mapping[Any, Any] | None) -> None:
        raw: Any = given
        if not isinstance(raw, Mapping | None) or not all(isinstance(key, str | type) for key in raw or ()):
            raise ConfigError(
                f"instances={clip(repr(raw))}: must be a mapping from classes, or 'module:Class', to their instances."
            )
        self._given = {
            key if isinstance(key, str) else f"{key.__module__}:{key.__name__}": value
            for key, value in (given or {}).items()
        }
        self._created: dict[type, Any] = {}
        for path, value in self._given.items():
            if inspect.iscoroutinefunction(value):
                raise ConfigError(
                    f"instances[{path!r}] is an async function, and a tool is loaded without waiting. "
                    f"Pass the instance: `instances={{{path!r}: await {value.__name__}()}}`."
                )
            # By name, because the class is not imported yet.
            class_paths = [f"{cls.__module__}:{cls.__name__}" for cls in type(value).__mro__]
            if not callable(value) and path not in class_paths:
                raise ConfigError(
                    f"instances[{path!r}] is an object of class {type(value).__name__!r}. "
                    f"Pass an instance of {path!r}, or a function that returns one."
                )

    def __contains__(self, path: str) -> bool:
        return path in self._given

    def refuse_unknown(self, known: Collection[str], changed_modules: Collection[str], place: str) -> None:
        """Raise a `ConfigError` for a class that the manifest does not list, unless its module has changed since."""
        for path in self._given:
            if path not in known and path.partition(":")[0] not in changed_modules:
                there = ", ".join(map(repr, sorted(known))) or "none"
                raise ConfigError(
                    f"instances[{path!r}]: {place} lists no tools of such a class. Classes in it: {there}. "
                    "Use the class or 'module:Class' as the key, or run `toolmason build` again."
                )

    def get(self, cls: type, path: str) -> Any:
        """Return the instance of a class.

        Raises:
            ConfigError: none was given and the class has required arguments, or creating one failed.
        """
        if cls not in self._created:
            self._created[cls] = self._create(cls, path)
        return self._created[cls]

    def _create(self, cls: type, path: str) -> Any:
        value = self._given.get(path, cls)
        if isinstance(value, cls):
            return value
        if path not in self._given and (required := find_required_arguments(cls)):
            raise ConfigError(
                f"{path!r} needs constructor arguments ({', '.join(required)}), and no instance of it was given. "
                f"Pass one: `Toolbox.from_manifest(..., instances={{{path!r}: {cls.__name__}(...)}})`."
            )
        try:
            created = value()
        except ToolmasonError:
            raise
        except (Exception, SystemExit) as error:
            raise ConfigError(f"Cannot create the object of {path!r}: {type(error).__name__}: {error}") from error
        if not isinstance(created, cls):
            if inspect.iscoroutine(created):
                created.close()  # else Python warns that it was never awaited
            raise ConfigError(
                f"The function in instances[{path!r}] returned an object of class {type(created).__name__!r}. "
                f"Return an instance of {path!r}."
            )
        return created
