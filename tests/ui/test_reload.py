"""A page that loads its target again."""

import sys

import pytest

from toolmason import Toolbox
from toolmason._core.catalog.discovery import load_target
from toolmason.ui.page import Page, PageOptions
from toolmason.ui.reload import Reloader, list_modules

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


def make_reloader(project):
    def load():
        return Toolbox(load_target("page_tools")), PageOptions("page_tools")

    page = Page(*load())
    return page, Reloader(page, load, project, (project / "page_tools.py",))


async def test_nothing_is_loaded_again_without_a_change(project):
    page, reloader = make_reloader(project)
    box = page.box

    assert await reloader.check() is False
    assert page.box is box


async def test_a_changed_file_changes_the_tools(project):
    page, reloader = make_reloader(project)
    (project / "page_tools.py").write_text(TOOLS.replace("def greet", "def welcome"), "utf-8")

    changed = await reloader.check()

    assert changed is True
    assert [tool.name for tool in page.box] == ["welcome"]


async def test_a_changed_file_that_the_target_imports_changes_the_tools(project):
    page, reloader = make_reloader(project)
    (project / "page_words.py").write_text('HELLO = "howdy"\n', "utf-8")

    await reloader.check()

    assert (await page.box.call("greet")).value == "howdy"


async def test_a_mistake_is_reported_and_the_tools_from_before_stay(project):
    page, reloader = make_reloader(project)
    (project / "page_tools.py").write_text("def (", "utf-8")

    await reloader.check()
    broken = page.problem
    (project / "page_tools.py").write_text(TOOLS.replace("Greet.", "Greet again."), "utf-8")
    await reloader.check()

    assert "SyntaxError" in broken
    assert page.problem == ""
    assert page.box["greet"].description == "Greet again."


async def test_a_module_beside_a_target_in_another_folder_is_loaded_again(project, tmp_path_factory):
    target = project / "page_tools.py"

    def load():
        return Toolbox(load_target(str(target))), PageOptions(str(target))

    page = Page(*load())
    reloader = Reloader(page, load, tmp_path_factory.mktemp("elsewhere"), [target])
    (project / "page_words.py").write_text('HELLO = "ciao!"\n', "utf-8")

    await reloader.check()

    assert (await page.box.call("greet")).value == "ciao!"
