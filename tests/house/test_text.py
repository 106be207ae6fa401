"""What no file of the repository may hold: a path of one machine, a package registry's host, a note to self."""

import re
import subprocess

import pytest

from house.source import PACKAGE, ROOT

MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|home)(?:/|\b)(?!\w)")
REGISTRY = re.compile(r"files\.pythonhosted\.org|pypi\.org/simple|registry\.npmjs\.org")
NOTE_TO_SELF = re.compile(r"\b(?:TODO|FIXME|XXX)\b")


@pytest.fixture(scope="module")
def tracked():
    """Text files that git tracks, or would with `git add`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    return {path: path.read_text("utf-8", errors="replace") for path in paths if path.is_file()}


def places(pattern, texts):
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_path_of_one_machine(tracked):
    assert ROOT / "pyproject.toml" in tracked
    assert places(MACHINE_PATH, tracked) == []


def test_no_file_names_a_package_registry(tracked):
    assert places(REGISTRY, tracked) == []


def test_the_source_has_no_notes_to_self():
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}

    assert texts
    assert places(NOTE_TO_SELF, texts) == []


@pytest.mark.parametrize("folder", ["work", "root", "home"])
def test_a_machine_path_is_recognised(folder):
    assert MACHINE_PATH.search(f"see /{folder}/me/file.txt")
    assert MACHINE_PATH.search(f'"/{folder}"')
    assert not MACHINE_PATH.search(f"docs/{folder}/page and https://host/{folder}/x and /{folder}s")


def test_a_note_to_self_is_recognised():
    assert NOTE_TO_SELF.search("# TODO: later")
