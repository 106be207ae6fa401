"""Setuptools build command that adds an up-to-date manifest to the wheel.

```toml
[tool.setuptools.cmdclass]
build_py = "toolmason.extend.BuildPy"

[tool.toolmason.build]
exclude = ["shop.tests.*"]
```
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
    """Build command that copies the modules and writes each package's manifest next to them."""

    def run(self) -> None:
        """Copy the modules, then write the manifests into the build folder."""
        super().run()
        if self.editable_mode:
            return  # an editable install imports the source tree; `toolmason build` writes the manifest there
        settings = _read_settings()
        for package in settings.get("packages", sorted(self._find_top_level())):
            folder = Path(self.get_package_dir(package))
            built = build_for_wheel(folder, settings.get("exclude", ()), report=logging.getLogger(__name__).info)
            file = Path(self.build_lib, *package.split("."), MANIFEST_FILE)
            file.write_bytes(built.data)
            self.manifests = [*getattr(self, "manifests", []), str(file)]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:  # noqa: FBT001, FBT002 - the signature of setuptools
        """Return the built files, including the manifests."""
        return [*super().get_outputs(include_bytecode), *getattr(self, "manifests", [])]

    def _find_top_level(self) -> set[str]:
        names = set(self.packages or ())
        return {name for name in names if not any(name.startswith(f"{other}.") for other in names)}


def _read_settings() -> dict[str, Any]:
    """Return `[tool.toolmason.build]` from `pyproject.toml`, or an empty dict if it is missing."""
    file = Path("pyproject.toml")
    table = tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
    found: Any = table.get("tool", {}).get("toolmason", {}).get("build", {})
    for name in ("packages", "exclude"):
        value = found.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"pyproject.toml: tool.toolmason.build.{name} must be a list of strings, not {value!r}.")
    return dict(found)
