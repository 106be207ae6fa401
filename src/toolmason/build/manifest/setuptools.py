"""The build command for setuptools: wheels carry a fresh manifest.

    [tool.setuptools.cmdclass]
    build_py = "toolmason.build.manifest.setuptools.BuildPy"

Lives here: what setuptools asks of a command. Not here: building the manifest (`manifest`).
"""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import Any

from toolmason._core.load.manifest import MANIFEST_FILE
from toolmason.build.manifest.package_manifest import build_for_wheel
from toolmason.errors import ConfigError

try:
    from setuptools.command.build_py import build_py
except ImportError as missing:
    raise ImportError("The build command needs setuptools: pip install setuptools") from missing


class BuildPy(build_py):
    """Copies the modules as always, then writes the manifest of each package beside them."""

    def run(self) -> None:
        """Build, then write the manifests into what was built."""
        super().run()
        if self.editable_mode:
            return  # the source itself is what is imported; `toolmason build` writes there
        settings = _read_settings()
        for package in settings.get("packages", sorted(self._find_top_level())):
            folder = Path(self.get_package_dir(package))
            built = build_for_wheel(folder, settings.get("exclude", ()), report=logging.getLogger(__name__).info)
            file = Path(self.build_lib, *package.split("."), MANIFEST_FILE)
            file.write_bytes(built.data)
            self.manifests = [*getattr(self, "manifests", []), str(file)]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:  # noqa: FBT001, FBT002 - as setuptools has it
        """Name what was built, the manifests included."""
        return [*super().get_outputs(include_bytecode), *getattr(self, "manifests", [])]

    def _find_top_level(self) -> set[str]:
        """Return the packages that are in no other one."""
        names = set(self.packages or ())
        return {name for name in names if not any(name.startswith(f"{other}.") for other in names)}


def _read_settings() -> dict[str, Any]:
    """Return `[tool.toolmason.build]` of the project; empty where there is none."""
    file = Path("pyproject.toml")
    table = tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
    found: Any = table.get("tool", {}).get("toolmason", {}).get("build", {})
    for name in ("packages", "exclude"):
        value = found.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"pyproject.toml: tool.toolmason.build.{name} = {value!r} is not a list of texts.")
    return dict(found)
