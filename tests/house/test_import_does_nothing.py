"""`import toolmason` loads no optional or slow package, configures nothing and reads no setting."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

REPORT = """
import json, logging, os, signal, sys, threading, warnings

reads = []


class Watched(type(os.environ)):
    def __getitem__(self, key):
        frame = sys._getframe(1)
        while frame.f_globals.get("__name__") in {"os", "collections.abc"}:
            frame = frame.f_back
        reads.append((frame.f_globals.get("__name__"), key))
        return super().__getitem__(key)


def state():
    root = logging.getLogger()
    return {
        "root logger": [root.level, [repr(h) for h in root.handlers]],
        "our handlers": [repr(h) for h in logging.getLogger("toolmason").handlers],
        "logger class": repr(logging.getLoggerClass()),
        "excepthook": repr(sys.excepthook),
        "interrupt": repr(signal.getsignal(signal.SIGINT)),
        "threads": threading.active_count(),
    }


# Pydantic adds its own filters and settings when it is loaded; only what we do is measured.
import pydantic

os.environ.__class__ = Watched
before = state()
IMPORT
after = state()
print(json.dumps({
    "loaded": sorted({name.partition(".")[0] for name in sys.modules}),
    "changed": [key for key in before if before[key] != after[key]],
    "reads": [key for module, key in reads if (module or "").partition(".")[0] in {"toolmason", "__main__"}],
}))
"""


def fresh_import(statement="import toolmason"):
    # Coverage starts itself in child processes through these, and would load modules there.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("COV", "COVERAGE", "PYTHON"))}
    command = [sys.executable, "-c", REPORT.replace("IMPORT", textwrap.dedent(statement))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *printed, report = done.stdout.splitlines()
    return {**json.loads(report), "printed": [*printed, *done.stderr.splitlines()]}


@pytest.fixture(scope="module")
def report():
    return fresh_import()


@pytest.mark.parametrize(
    "package", ["anthropic", "click", "google", "httpx", "httpx2", "jsonschema", "mcp", "openai", "rich", "yaml"]
)
def test_import_does_not_load(package, report):
    assert "toolmason" in report["loaded"]
    assert package not in report["loaded"]


def test_import_changes_no_global_state(report):
    assert report["changed"] == []


def test_import_reads_no_environment_variable(report):
    assert report["reads"] == []


def test_import_prints_nothing(report):
    assert report["printed"] == []


def test_a_change_of_global_state_would_be_seen():
    report = fresh_import("logging.basicConfig(level=10); os.environ.get('HOME'); import click")

    assert report["changed"] == ["root logger"]
    assert report["reads"] == ["HOME"]
    assert "click" in report["loaded"]


BASE_INSTALL = """
import importlib.metadata, pydoc, re, sys

needed, new = set(), {"toolmason"}
while new:
    needed |= new
    lines = [line for name in new for line in importlib.metadata.requires(name) or () if "extra ==" not in line]
    new = {re.match(r"[\\w.-]+", line)[0] for line in lines if "python_version" not in line} - needed
packages = importlib.metadata.packages_distributions()
normal = {name.lower().replace("_", "-") for name in needed}
sys.modules |= {
    package: None
    for package, owners in packages.items()
    if not {name.lower().replace("_", "-") for name in owners} & normal and "mypyc" not in package
}
"""
"""Hide every installed package that a base install does not have."""
PUBLIC = [
    *("", ".chat", ".converters", ".errors", ".extend", ".mcp", ".models", ".observe", ".providers"),
    *(".scale", ".testing"),
]


def run_on_a_base_install(program):
    return subprocess.run([sys.executable, "-c", BASE_INSTALL + program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", PUBLIC, ids=[f"toolmason{name}" for name in PUBLIC])
def test_a_base_install_has_the_names_and_the_help_of_each_public_module(module):
    """Review, newcomer 11: `help()` said that another package is missing, and nothing else."""
    program = f"""
import toolmason{module} as module
from toolmason{module} import *
text = pydoc.plain(pydoc.render_doc(module))
print([name for name in getattr(module, "__all__", ()) if name not in globals()])
print("NAME" in text, "httpx2" in sys.modules and sys.modules["httpx2"])
"""
    done = run_on_a_base_install(program)

    assert done.stdout.splitlines() == ["[]", "True None"], done.stderr


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("from toolmason.mcp import client_credentials as f\nf('https://a/mcp', 'i', 's', issuer='https://i')", "mcp"),
        ("from toolmason import McpServer, Toolbox\nToolbox(McpServer.http('a', 'https://a/mcp')).list_sync()", "mcp"),
        ("from toolmason import Toolbox, serve\nserve(Toolbox(), transport='http')", "serve"),
        ("from toolmason import model\nmodel('openai:gpt-5', api_key='k')", "models"),
        ("from toolmason.observe import record\nwith record(): pass", "otel"),
        ("from toolmason.cli.main import main", "cli"),
        ("from toolmason.scale import TemporalRuntime\nTemporalRuntime()", "temporal"),
        ("from toolmason.scale import RayExecutor\nRayExecutor().connect()", "ray"),
    ],
    ids=["oauth", "mcp", "serve", "models", "otel", "cli", "temporal", "ray"],
)
def test_a_missing_extra_is_named_with_its_command(program, extra):
    done = run_on_a_base_install(program)

    assert f"pip install 'toolmason[{extra}]'" in done.stderr.splitlines()[-1]


def test_the_inspection_of_a_server_without_the_sdk_names_its_extra():
    program = """
import sys
sys.modules |= dict(mcp=None, mcp_types=None)
sys.argv = ["toolmason", "mcp", "inspect", "http://127.0.0.1:1/mcp"]
from toolmason.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "pip install 'toolmason[mcp]'" in done.stderr
    assert "Traceback" not in done.stderr
