"""Real builds with hatch and setuptools: the wheel carries the manifest, and what is installed is listed from it."""

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from fork_server import COMMAND

PLUGIN = '''
from toolmason import tool


@tool(read_only=True)
def count_parcels(city: str = "Brno") -> int:
    """Count the parcels in a city."""
    return len(city)
'''

HATCH = """
[build-system]
requires = ["hatchling", "toolmason"]
build-backend = "hatchling.build"

[project]
name = "parcels"
version = "1.0"

[project.entry-points."toolmason.tools"]
parcels = "parcels"

[tool.hatch.build.targets.wheel]
packages = ["src/parcels"]

[tool.hatch.build.targets.wheel.hooks.toolmason]
"""

SETUPTOOLS = """
[build-system]
requires = ["setuptools", "toolmason"]
build-backend = "setuptools.build_meta"

[project]
name = "parcels"
version = "1.0"

[project.entry-points."toolmason.tools"]
parcels = "parcels"

[tool.setuptools.packages.find]
where = ["src"]

[tool.setuptools.cmdclass]
build_py = "toolmason.build.manifest.setuptools.BuildPy"
"""

BACKENDS = {"hatch": HATCH, "setuptools": SETUPTOOLS}


def project(folder, settings, **sources):
    package = folder / "src" / "parcels"
    (package / "inner").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(settings, "utf-8")
    (package / "__init__.py").write_text('"""Parcels."""\n', "utf-8")
    (package / "inner" / "__init__.py").touch()
    for name, source in {"tools": PLUGIN, **sources}.items():
        (package / f"{name}.py").write_text(source, "utf-8")
    return folder


def pip(*arguments, **options):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    # Without what the tests set for themselves: coverage in a build would look for the project's settings.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PIP_"))}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False, **options)


@pytest.fixture
def build_wheel(forks):
    """Build a wheel as pip does: call the hook of the back end (PEP 517) in its own process, in the project."""

    def build(folder, into):
        text = (folder / "pyproject.toml").read_text("utf-8")
        backend = tomllib.loads(text)["build-system"]["build-backend"]
        code = f"import sys\nfrom {backend} import build_wheel\nbuild_wheel(sys.argv[1])"
        into.mkdir()
        return forks.run([sys.executable, "-c", code, str(into)], cwd=folder)

    return build


def wheel_in(done, into):
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = Path(into).glob("*.whl")
    return wheel


def manifest_in(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        assert names.count("parcels/_toolmason.json") == 1
        record = packed.read(next(name for name in names if name.endswith("RECORD"))).decode()
        assert "parcels/_toolmason.json,sha256=" in record
        return json.loads(packed.read("parcels/_toolmason.json"))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("backend", "target"), [("hatch", []), ("setuptools", ["parcels"])], ids=["hatch", "setuptools"]
)
def test_an_installed_plugin_is_listed_from_the_manifest_that_its_wheel_carries(tmp_path, backend, target):
    folder = project(tmp_path / "project", BACKENDS[backend])
    done = pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", tmp_path / "dist", folder)
    wheel = wheel_in(done, tmp_path / "dist")
    installed = tmp_path / "installed"
    done = pip("install", "--no-deps", "--no-index", "--target", installed, wheel)
    assert done.returncode == 0, done.stderr
    program = """
import sys
from toolmason import Toolbox, discover

box = Toolbox(discover(), Toolbox.from_manifest("parcels").prefixed("own_"))
print([tool.name for tool in box], [name for name in sys.modules if name.startswith("parcels")])
called = box.call_sync("count_parcels", {"city": "Praha"})
print(called.value, sorted(name for name in sys.modules if name.startswith("parcels")))
"""
    environment = {**os.environ, "PYTHONPATH": str(installed)}

    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    listed = subprocess.run(
        [Path(sys.executable).with_name("toolmason"), "list", *target],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert manifest_in(wheel)["tools"][0]["path"] == "parcels.tools:count_parcels"
    assert ran.stdout.splitlines() == ["['count_parcels', 'own_count_parcels'] []", "5 ['parcels', 'parcels.tools']"], (
        ran.stderr
    )
    assert listed.stdout.startswith("count_parcels(city?: string)  read-only"), listed.stderr
    assert listed.stderr == ""
    assert not (folder / "src" / "parcels" / "_toolmason.json").exists()
    assert not list((folder / "src").rglob("__pycache__"))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_build_leaves_out_the_modules_that_the_settings_name(build_wheel, tmp_path, backend):
    table = {
        "hatch": 'exclude = ["parcels.broken"]\n',
        "setuptools": '\n[tool.toolmason.build]\nexclude = ["parcels.broken"]\n',
    }
    folder = project(tmp_path / "project", BACKENDS[backend] + table[backend], broken="import no_such_module\n")

    wheel = wheel_in(build_wheel(folder, tmp_path / "dist"), tmp_path / "dist")

    assert [tool["name"] for tool in manifest_in(wheel)["tools"]] == ["count_parcels"]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_package_that_cannot_be_imported_stops_the_build_and_says_what_to_do(build_wheel, tmp_path, backend):
    folder = project(tmp_path / "project", BACKENDS[backend], broken="import no_such_module\n")

    done = build_wheel(folder, tmp_path / "dist")

    assert done.returncode != 0
    assert "'parcels.broken': loading failed" in done.stdout + done.stderr
    assert "The build imports the package" in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_manifest_in_the_source_is_packed_once_and_must_be_up_to_date(build_wheel, forks, tmp_path):
    folder = project(tmp_path / "project", HATCH)
    package = folder / "src" / "parcels"
    built = forks.run([COMMAND, "build", str(package)], cwd=tmp_path)
    assert built.returncode == 0, built.stderr

    wheel = wheel_in(build_wheel(folder, tmp_path / "dist"), tmp_path / "dist")
    fresh = manifest_in(wheel)
    (package / "tools.py").write_text(PLUGIN.replace("Brno", "Most"), "utf-8")
    done = build_wheel(folder, tmp_path / "other")

    assert fresh["package"] == "parcels"
    assert done.returncode != 0
    assert "'src/parcels/_toolmason.json' is out of date" in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param(
            HATCH + 'packages = "parcels"\n', "The toolmason build hook has an invalid packages = 'parcels'", id="hatch"
        ),
        pytest.param(
            SETUPTOOLS + "\n[tool.toolmason.build]\nexclude = 5\n",
            "tool.toolmason.build.exclude must be a list of strings, not 5",
            id="setuptools",
        ),
    ],
)
def test_settings_that_make_no_sense_stop_the_build(build_wheel, tmp_path, settings, words):
    folder = project(tmp_path / "project", settings)

    done = build_wheel(folder, tmp_path / "dist")

    assert done.returncode != 0
    assert words in done.stdout + done.stderr
