"""Tools of installed distributions and of packages: what is found, what is broken, what clashes.

The distributions are real: built and installed by pip (tests/plugins, tests/installed.py).
"""

import logging
import sys

import pytest

from installed import PLUGINS, on_path
from toolmason import Toolbox, discover, scan, tool
from toolmason.errors import ConfigError, DefinitionError, DuplicateTool, PluginError


def names(box: Toolbox) -> list[str]:
    return [found.name for found in box]


def order(box: Toolbox) -> list[str]:
    """The names in the order in which they were found."""
    return [item.name for item in box.__tools__()]


# --- entry points ------------------------------------------------------------------------------


def test_nothing_is_installed_and_nothing_is_found():
    box = discover()

    assert (names(box), box.problems) == ([], ())


@pytest.mark.row("MA-3")
def test_an_entry_point_names_a_module_a_class_a_function_or_a_toolbox(with_installed):
    with_installed("alpha-tools", "beta-tools")

    box = discover()

    alpha = ["forecast", "shelf_size", "static_answer", "warn"]
    assert names(box) == sorted([*alpha, "echo", "hidden_until_boxed", "plain"])
    assert [prompt.name for prompt in box.prompts] == ["ask"]
    assert box.problems == ()


def test_tools_come_by_distribution_and_name_whatever_the_order_on_the_path(with_installed):
    with_installed("beta-tools", "alpha-tools")

    found = [item for item in order(discover()) if item != "ask"]

    assert found == ["shelf_size", "static_answer", "forecast", "warn", "echo", "hidden_until_boxed", "plain"]


def test_installed_tools_run(with_installed):
    with_installed("alpha-tools", "beta-tools")
    box = discover()

    assert box.call_sync("forecast", {"city": "Brno"}).text == "alpha: rain in Brno"
    assert box.call_sync("shelf_size").value == 3
    assert box.call_sync("static_answer").value == 42
    assert box.call_sync("plain", {"number": 1}).value == 2
    assert box.prompt_sync("ask", {"topic": "snow"})[0].text == "Tell me about snow."


def test_a_bundle_class_is_made_once_for_each_discovery(with_installed):
    with_installed("alpha-tools")
    discover()
    shelf = sys.modules["alpha_tools.bundle"].Shelf
    before = shelf.made

    discover()

    assert shelf.made == before + 1


def test_another_group_holds_other_tools(with_installed):
    with_installed("alpha-tools")

    assert names(discover(group="someone.else")) == []


def test_a_function_that_is_offered_twice_is_one_tool(with_installed):
    """beta-tools offers `echo` by itself and in its toolbox."""
    with_installed("beta-tools")

    assert names(discover()).count("echo") == 1


def test_a_distribution_that_is_on_the_path_twice_is_one(distributions, tmp_path):
    copy = tmp_path / "copy"
    copy.symlink_to(distributions["alpha-tools"])

    with on_path(distributions["alpha-tools"], copy):
        assert "forecast" in discover()


def test_options_of_a_toolbox_go_over_what_is_discovered(with_installed):
    with_installed("alpha-tools", "broken-tools")

    box = Toolbox(discover(), name="mine")

    assert "forecast" in box
    assert [problem.name for problem in box.problems] == ["exits", "raises"]


# --- broken plugins ----------------------------------------------------------------------------


def test_a_broken_plugin_is_skipped_and_reported_with_its_distribution(with_installed, caplog):
    with_installed("alpha-tools", "broken-tools")

    with caplog.at_level(logging.WARNING, "toolmason"):
        box = discover()

    assert "survivor" in box
    assert "forecast" in box
    assert [(problem.distribution, problem.name) for problem in box.problems] == [
        ("broken-tools", "exits"),
        ("broken-tools", "raises"),
    ]
    exits, raises = box.problems
    assert "the disk is on fire" in str(raises)
    assert isinstance(raises.__cause__, RuntimeError)
    assert isinstance(exits.__cause__, SystemExit)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert all("'broken-tools'" in record.getMessage() for record in caplog.records)


def test_a_view_still_tells_what_was_skipped(with_installed):
    with_installed("broken-tools")

    assert len(discover().select("survivor").problems) == 2


def test_strict_raises_for_a_broken_plugin(with_installed):
    with_installed("broken-tools")

    with pytest.raises(PluginError, match="broken-tools") as caught:
        discover(strict=True)

    assert caught.value.name == "exits"
    assert isinstance(caught.value, DefinitionError)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("attribute", "missing"),
        ("module", "nothing_tools.missing"),
        ("empty", "No @tool found"),
        ("needy", "Needy(...)"),
        ("number", "5 is not a source of tools"),
        ("text", "'not a tool'"),
        ("raising", "no database"),
    ],
)
def test_an_entry_point_that_names_no_tool_is_reported_with_the_reason(with_installed, name, reason):
    with_installed("nothing-tools")

    problems = {problem.name: problem for problem in discover().problems}

    assert len(problems) == 7
    assert reason in str(problems[name])
    assert problems[name].value in str(problems[name])


def test_a_plugin_that_takes_the_name_of_a_tool_of_ours_is_broken_and_nothing_else(tmp_path):
    (tmp_path / "taker-1.dist-info").mkdir()
    (tmp_path / "taker-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: taker\nVersion: 1\n")
    (tmp_path / "taker-1.dist-info" / "entry_points.txt").write_text("[toolmason.tools]\ntaker = taker\n")
    (tmp_path / "taker.py").write_text("from toolmason import tool\n@tool\ndef read_result() -> str: ...\n")

    with on_path(tmp_path):
        [problem] = discover().problems

    assert "read_result" in str(problem)


@pytest.mark.parametrize(
    ("metadata", "points"),
    [(None, "[toolmason.tools]\nodd = json\n"), ("", "[toolmason.tools]\nodd = \n"), ("Name: x\n", "odd = odd\n[")],
    ids=["no metadata", "no value", "no group"],
)
def test_a_distribution_that_is_damaged_does_not_stop_the_others(with_installed, tmp_path, metadata, points):
    with_installed("alpha-tools")
    (tmp_path / "odd-1.dist-info").mkdir()
    if metadata is not None:
        (tmp_path / "odd-1.dist-info" / "METADATA").write_text(metadata)
    (tmp_path / "odd-1.dist-info" / "entry_points.txt").write_text(points)

    with on_path(tmp_path):
        box = discover()

    assert "forecast" in box


# --- clashes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [False, True])
def test_two_distributions_with_one_tool_name_are_a_clash_that_names_both(with_installed, strict):
    with_installed("alpha-tools", "clash-tools")

    with pytest.raises(DuplicateTool) as caught:
        discover(strict=strict)

    assert caught.value.name == "forecast"
    assert "'alpha-tools'" in caught.value.first
    assert "'clash-tools'" in caught.value.second


# --- what a plugin is for ----------------------------------------------------------------------


@pytest.mark.row("MA-4")
@pytest.mark.parametrize(
    ("application", "expected"),
    [
        ("none", ["for_all"]),
        ("App", ["for_all", "for_app", "for_either", "for_some"]),
        ("App()", ["for_all", "for_app", "for_either", "for_some"]),
        ("SubApp", ["for_all", "for_app", "for_either", "for_some"]),
        ("Other", ["for_all", "for_either", "for_tag", "in_box", "in_module"]),
        ("Other()", ["for_all", "for_either", "for_tag", "in_box", "in_module"]),
        ("Stranger", ["for_all", "for_protocol"]),
        ("Stranger()", ["for_all", "for_protocol"]),
        ("'worker'", ["for_all", "for_tag"]),
        ("object", ["for_all"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bundle_applies_to_the_applications_it_is_for(with_installed, application, expected):
    """MA-4: any listed class, subclasses too; absent is all, empty is none."""
    with_installed("app-tools")
    from app_tools import host

    chosen = None if application == "none" else eval(application, vars(host))  # noqa: S307 - the words above

    assert names(discover(chosen)) == expected


def test_what_is_not_for_an_application_is_no_problem(with_installed):
    with_installed("app-tools")

    assert discover(object).problems == ()


# --- scanning a package ------------------------------------------------------------------------


@pytest.fixture
def scanned():
    with on_path(PLUGINS / "scanned"):
        yield


@pytest.mark.row("AJ-1")
@pytest.mark.usefixtures("scanned")
def test_a_scan_takes_decorated_objects_of_every_module_and_nothing_else():
    box = scan("shelf")

    assert names(box) == ["far_down", "kind", "made", "shared", "top"]
    assert [prompt.name for prompt in box.prompts] == ["opening"]
    assert box.call_sync("kind").text == "derived"
    assert box.call_sync("far_down").text == "deep"


@pytest.mark.usefixtures("scanned")
def test_a_module_that_cannot_be_imported_is_skipped_and_reported(caplog):
    box = scan("shelf")

    assert {problem.value for problem in box.problems} == {"shelf.broken", "shelf.bundles:Needy", "shelf.deep.bad"}
    assert all(problem.distribution is None for problem in box.problems)
    assert len(caplog.records) == 3
    assert "no shelf" in str(next(problem for problem in box.problems if problem.value == "shelf.broken"))


@pytest.mark.usefixtures("scanned")
def test_a_strict_scan_raises_for_a_module_that_cannot_be_imported():
    with pytest.raises(PluginError, match="no shelf"):
        scan("shelf", strict=True)


@pytest.mark.usefixtures("scanned")
def test_a_scan_does_not_run_the_program_of_a_package():
    scan("shelf")

    assert "shelf.__main__" not in sys.modules


@pytest.mark.usefixtures("scanned")
def test_a_scan_takes_one_module_or_a_module_object():
    import shelf.deep.inner

    assert names(scan("shelf.deep.inner")) == ["far_down"]
    assert names(scan(shelf.deep.inner)) == ["far_down"]


@pytest.mark.usefixtures("scanned")
def test_two_modules_with_one_tool_name_are_a_clash_that_names_both():
    with pytest.raises(DuplicateTool) as caught:
        scan("twice")

    assert "'twice.one'" in caught.value.first
    assert "'twice.two'" in caught.value.second


@pytest.mark.usefixtures("scanned")
def test_a_package_whose_own_init_fails_is_reported():
    [problem] = scan("shelf.broken").problems

    assert "no shelf" in str(problem)


@pytest.mark.parametrize("name", ["no_such_package", "shelf.nothing", "", "..", "a b", "os.path:join"])
@pytest.mark.usefixtures("scanned")
def test_a_package_that_is_not_there_is_told(name):
    with pytest.raises(ConfigError):
        scan(name)


def test_a_scan_leaves_what_is_not_for_the_application(with_installed):
    with_installed("app-tools")
    from app_tools.host import App, Other

    assert names(scan("app_tools", app=App)) == ["for_all", "for_app", "for_either", "for_some", "in_box"]
    assert "in_module" in scan("app_tools", app=Other)
    assert "in_module" not in scan("app_tools", app=App)


def test_a_scan_finds_nothing_where_nothing_is_decorated():
    assert names(scan("json")) == []


def test_a_toolbox_takes_everything_whatever_it_is_for(with_installed):
    """`supported_for` guides discovery; who hands a bundle over means it."""
    with_installed("app-tools")
    from app_tools import ForApp

    @tool
    def own() -> None: ...

    assert names(Toolbox(ForApp(), own)) == ["for_app", "own"]
