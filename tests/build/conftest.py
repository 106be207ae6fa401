"""What the tests of a check share: a folder of files, checked as the command checks them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from build.marks import expected, unmarked
from toolmason.build.check.find_files import find_target
from toolmason.build.check.run_checks import Report, check
from toolmason.build.check.settings import CheckSettings


class Folder:
    """A folder of files that can be checked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(unmarked(text), "utf-8")

    def check(self, *targets: str, mode="static", strict=False, **settings) -> Report:
        found = [find_target(target) for target in targets or ["."]]
        return check(found, CheckSettings(**settings), mode=mode, strict=strict)

    def places(self, text: str, **how) -> list[str]:
        """Return what is found in one file, as `line:column code`."""
        self.write({"app.py": text})
        return [
            f"{found.location.line}:{found.location.column} {found.code}"
            for found in self.check("app.py", **how).findings
        ]

    def codes(self, text: str, **how) -> list[str]:
        return [place.partition(" ")[2] for place in self.places(text, **how)]

    def agrees(self, text: str, **how) -> None:
        """Assert that exactly what is marked is found."""
        assert self.places(text, **how) == expected(text)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)
