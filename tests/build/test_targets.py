"""What a target means: files, folders, modules, packages, with and without a name; found without importing."""

import sys

import pytest

from toolmason.build.check.find_files import find_target
from toolmason.errors import ConfigError


@pytest.fixture
def project(folder):
    folder.write(
        {
            "app.py": "",
            "pkg/__init__.py": "raise SystemExit('imported')",
            "pkg/a.py": "",
            "pkg/sub/__init__.py": "raise SystemExit('imported')",
            "pkg/sub/b.py": "",
            "pkg/.hidden/c.py": "",
            "pkg/__pycache__/d.py": "",
            "pkg/env/pyvenv.cfg": "",
            "pkg/env/lib/e.py": "",
            "pkg/data.txt": "",
            "space/plain.py": "",
            "odd:name/f.py": "",
        }
    )
    return folder


def shown(target, exclude=()):
    found = find_target(target, exclude)
    return [file.display_path for file in found.files], found.name


PACKAGE = ["pkg/__init__.py", "pkg/a.py", "pkg/sub/__init__.py", "pkg/sub/b.py"]


@pytest.mark.parametrize(
    ("target", "files", "name"),
    [
        ("app.py", ["app.py"], ""),
        ("./app.py", ["app.py"], ""),
        ("app.py:box", ["app.py"], "box"),
        ("app.py:shop.box", ["app.py"], "shop.box"),
        ("app", ["app.py"], ""),
        ("app:box", ["app.py"], "box"),
        ("pkg", PACKAGE, ""),
        ("pkg/", PACKAGE, ""),
        ("pkg/sub", ["pkg/sub/__init__.py", "pkg/sub/b.py"], ""),
        ("pkg.sub", ["pkg/sub/__init__.py", "pkg/sub/b.py"], ""),
        ("pkg.sub.b", ["pkg/sub/b.py"], ""),
        ("pkg.sub.b:box", ["pkg/sub/b.py"], "box"),
        ("pkg.sub:box", ["pkg/sub/__init__.py"], "box"),
        ("space", ["space/plain.py"], ""),
        ("odd:name", ["odd:name/f.py"], ""),
        ("odd:name/f.py", ["odd:name/f.py"], ""),
    ],
)
def test_a_target_means_files(project, target, files, name):
    assert shown(target) == (files, name)


def test_nothing_is_imported_to_find_a_module(project):
    find_target("pkg.sub.b")

    assert not {name for name in sys.modules if name.partition(".")[0] == "pkg"}


def test_the_module_of_a_file_is_told_by_the_packages_around_it(project):
    modules = {file.display_path: file.module for file in find_target(".").files}

    assert modules["pkg/sub/b.py"] == "pkg.sub.b"
    assert modules["pkg/sub/__init__.py"] == "pkg.sub"
    assert modules["space/plain.py"] == "plain"
    assert modules["app.py"] == "app"


def test_an_installed_package_is_found_by_its_name():
    found = find_target("toolmason.cli")

    assert "main.py" in {file.path.name for file in found.files}
    assert {file.module.partition(".")[0] for file in found.files} == {"toolmason"}


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        (["pkg/sub"], ["pkg/__init__.py", "pkg/a.py"]),
        (["sub"], ["pkg/__init__.py", "pkg/a.py"]),
        (["*/b.py", "__init__.py"], ["pkg/a.py"]),
        (["pkg/*/*"], ["pkg/__init__.py", "pkg/a.py"]),
    ],
    ids=str,
)
def test_paths_may_be_left_out_of_a_folder(project, exclude, left):
    assert shown("pkg", exclude) == (left, "")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothing.py", "'nothing.py': file 'nothing.py' does not exist. Check the path."),
        ("nothing/here", "'nothing/here': file 'nothing/here' does not exist"),
        ("nothing.py:box", "'nothing.py:box': file 'nothing.py' does not exist."),
        ("nothing", "'nothing': no Python source found for 'nothing'. Check the spelling, or give a path."),
        ("pkg.nothing", "'pkg.nothing': no Python source found for 'pkg.nothing'."),
        ("app.nothing", "'app.nothing': no Python source found"),
        ("", "'': no Python source found for ''."),
        (":box", "':box': no Python source found"),
        ("not a module", "'not a module': no Python source found"),
        ("math", "'math': no Python source found for 'math'."),
    ],
)
def test_a_target_that_is_not_there_is_told(project, target, message):
    with pytest.raises(ConfigError) as caught:
        find_target(target)

    assert str(caught.value).startswith(message)


def test_a_folder_without_python_files_is_told(project):
    (project.path / "empty").mkdir()

    with pytest.raises(ConfigError, match="the folder has no Python files"):
        find_target("empty")


def test_what_a_build_left_behind_is_left_out_and_a_package_of_that_name_is_not(project):
    project.write(
        {
            "one/build/lib/copy.py": "",
            "one/dist/b.py": "",
            "two/build/__init__.py": "",
            "two/build/c.py": "",
            "two/a.py": "",
            "one/a.py": "",
        }
    )

    assert shown("one") == (["one/a.py"], "")
    assert shown("two") == (["two/a.py", "two/build/__init__.py", "two/build/c.py"], "")


def test_a_file_that_two_targets_mean_is_read_once(project):
    assert project.check("app.py", "app", "app.py").files == 1
