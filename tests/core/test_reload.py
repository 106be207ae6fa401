"""A target that is loaded again when one of its files changes."""

import sys

import pytest

from toolmason import Toolbox
from toolmason._core.catalog.discovery import load_target
from toolmason._core.load.reload import Reloader, list_modules

TOOLS = '''
from toolmason import tool
import page_words

@tool
def greet() -> str:
    """Greet."""
    return page_words.HELLO
'''


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page_words.py").write_text('HELLO = "hello"\n', "utf-8")
    (tmp_path / "page_tools.py").write_text(TOOLS, "utf-8")
    yield tmp_path
    for name in list_modules([tmp_path]):
        del sys.modules[name]


class Shown:
    """What a reader of the target has: its toolbox, and the problems with later ones."""

    def __init__(self, target="page_tools"):
        self.target, self.box, self.problems = target, self.load(target), []
        self.reloader = Reloader(lambda: self.load(target), self.replace, self.problems.append, target)

    @staticmethod
    def load(target):
        return Toolbox(load_target(target))

    async def replace(self, box):
        self.box = box


async def test_nothing_is_loaded_again_without_a_change(project):
    shown = Shown()
    box = shown.box

    assert await shown.reloader.check() is False
    assert shown.box is box


async def test_a_changed_file_changes_the_tools(project):
    shown = Shown()
    (project / "page_tools.py").write_text(TOOLS.replace("def greet", "def welcome"), "utf-8")

    changed = await shown.reloader.check()

    assert changed is True
    assert [tool.name for tool in shown.box] == ["welcome"]


async def test_a_changed_file_that_the_target_imports_changes_the_tools(project):
    shown = Shown()
    (project / "page_words.py").write_text('HELLO = "howdy"\n', "utf-8")

    await shown.reloader.check()

    assert (await shown.box.call("greet")).value == "howdy"


async def test_a_mistake_is_reported_once_and_the_tools_from_before_stay(project):
    shown = Shown()
    (project / "page_tools.py").write_text("def (", "utf-8")

    await shown.reloader.check()
    again = await shown.reloader.check()

    assert again is False
    assert [tool.name for tool in shown.box] == ["greet"]
    [problem] = shown.problems
    assert "SyntaxError" in problem


@pytest.mark.parametrize("name", ["page_words.py", "page_new.py"], ids=["known", "new"])
async def test_a_mistake_in_a_module_is_reported_once_and_its_correction_is_noticed(project, name):
    shown = Shown()
    if name == "page_new.py":
        (project / "page_tools.py").write_text(f"import page_new\n{TOOLS}", "utf-8")
    (project / name).write_text("HELLO = (", "utf-8")

    await shown.reloader.check()
    again = await shown.reloader.check()
    (project / name).write_text('HELLO = "back again"\n', "utf-8")
    corrected = await shown.reloader.check()

    assert len(shown.problems) == 1
    assert (again, corrected) == (False, True)
    assert [tool.name for tool in shown.box] == ["greet"]


async def test_a_module_beside_a_target_in_another_folder_is_loaded_again(project, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    shown = Shown(str(project / "page_tools.py"))
    (project / "page_words.py").write_text('HELLO = "ciao!"\n', "utf-8")

    await shown.reloader.check()

    assert (await shown.box.call("greet")).value == "ciao!"
