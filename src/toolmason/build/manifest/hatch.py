"""Hatch build hook that adds an up-to-date manifest to the wheel.

```toml
[tool.hatch.build.targets.wheel.hooks.toolmason]
packages = ["src/shop"]
```
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from toolmason._core.load.manifest import MANIFEST_FILE
from toolmason.build.manifest.package_manifest import ManifestFile, build_for_wheel
from toolmason.errors import ConfigError

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    from hatchling.plugin import hookimpl
except ImportError as missing:
    raise ImportError("The hatch build hook needs hatchling: pip install hatchling") from missing


class ManifestHook(BuildHookInterface[Any]):
    """Build hook that adds each package's manifest to the wheel and leaves the source tree unchanged."""

    PLUGIN_NAME = "toolmason"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the manifests before hatch collects the files."""
        if version == "editable":
            return  # an editable install imports the source tree; `toolmason build` writes the manifest there
        folder = tempfile.TemporaryDirectory(prefix="toolmason-")
        self.folder = folder
        for package_path in self._get_packages():
            built = build_for_wheel(
                Path(self.root) / package_path, self.config.get("exclude", ()), report=self.app.display_info
            )
            if self._is_packed(Path(package_path) / MANIFEST_FILE, built):
                continue
            file = Path(folder.name) / f"{built.content['package']}.json"
            file.write_bytes(built.data)
            wheel_path = Path(*built.content["package"].split(".")) / MANIFEST_FILE
            build_data["force_include"][str(file)] = wheel_path.as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the temporary files."""
        del version, build_data, artifact_path
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def _is_packed(self, manifest_path: Path, built: ManifestFile) -> bool:
        """Return True if hatch already packs a manifest from the source tree; adding another one would clash.

        Raises:
            ConfigError: the manifest in the source tree is out of date.
        """
        if not built.path.is_file() or not self.build_config.include_path(manifest_path.as_posix()):
            return False
        if built.path.read_bytes() != built.data:
            raise ConfigError(
                f"{manifest_path.as_posix()!r} is out of date. Run `toolmason build {manifest_path.parent.as_posix()}`."
            )
        return True

    def _get_packages(self) -> list[str]:
        packages: Any = self.config.get("packages", self.build_config.packages)
        if (
            not isinstance(packages, list)
            or not packages
            or not all(isinstance(package_path, str) for package_path in packages)
        ):
            raise ConfigError(
                f"The toolmason build hook has an invalid packages = {packages!r}. List the package folders: "
                '`[tool.hatch.build.targets.wheel.hooks.toolmason] packages = ["src/shop"]`.'
            )
        return packages


@hookimpl
def hatch_register_build_hook() -> type[ManifestHook]:
    """Register the hook with hatch."""
    return ManifestHook
