"""What every test may use: the event loop's backend, how much a fuzz test throws, real plugins."""

import gc
import importlib
import os
import signal
import sys
import tempfile
import textwrap
from collections import Counter, defaultdict
from contextlib import ExitStack

import pytest
from anyio._backends._asyncio import TestRunner
from hypothesis import settings
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import otel_checks
from fork_server import ForkServer
from installed import installed, on_path

# A deadline measures the machine, not the code; pytest-timeout bounds a test that hangs.
settings.register_profile("sample", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("full", deadline=None, max_examples=5_000)
EXIT_STATUS = pytest.StashKey[int]()
FUZZ_COUNTS = {"sample": 200, "thorough": 2_000, "full": 100_000}


# A shell starts a command in the background with SIGINT ignored, and its children inherit that: none could be ended.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--thorough", action="store_true", help="run fuzz and property tests at the size of `make cover`")
    parser.addoption("--full", action="store_true", help="run fuzz and property tests at full size")
    parser.addoption("--traced", action="store_true", help="run every test with a tracer provider and a meter provider")


def size_of(config):
    """How much fuzz and property tests throw: `sample`, `thorough` or `full`."""
    return next((size for size in ("full", "thorough") if config.getoption(size)), "sample")


def pytest_configure(config):
    settings.load_profile(size_of(config))
    # Used decisions are recorded there; tests, and the programs that they start, leave the user's own alone.
    folder = tempfile.TemporaryDirectory(prefix="toolmason-state-")
    config.add_cleanup(folder.cleanup)
    os.environ["XDG_STATE_HOME"] = folder.name
    # The local model keeps its merged weights there: they are made once, whatever home folder a test has.
    os.environ.setdefault("XDG_CACHE_HOME", f"{sys.prefix}/cache")
    TestRunner.__exit__ = exit_quietly


def pytest_collection_modifyitems(config, items):
    """Leave out the tests that measure time, except at full size: others that run beside them change the figures."""
    if size_of(config) != "full":
        timed = [item for item in items if item.get_closest_marker("timed")]
        config.hook.pytest_deselected(items=timed)
        items[:] = [item for item in items if not item.get_closest_marker("timed")]


def pytest_terminal_summary(terminalreporter):
    """Print what the tests that kill processes counted, one row for each test and engine."""
    rows = defaultdict(Counter)
    for report in terminalreporter.getreports("passed"):
        if any(name == "kills" for name, _ in report.user_properties):
            test, _, case = report.nodeid.rpartition("::")[2].partition("[")
            engine = case.rstrip("]").strip("0123456789-")
            rows[f"{test.removeprefix('test_').replace('_', ' ')}: {engine}"].update(dict(report.user_properties))
    for number, (name, counts) in enumerate(sorted(rows.items())):
        if number == 0:
            terminalreporter.write_line(f"| what is killed | {' | '.join(counts)} |")
            terminalreporter.write_line("|---" * (len(counts) + 1) + "|")
        terminalreporter.write_line(f"| {name} | {' | '.join(f'{n:,}' for n in counts.values())} |")


@pytest.fixture
def count_kills(record_property):
    """Add to a row of the table that is printed after the tests. `begun` counts the starts of each call.

    `unknown` is the number of calls whose loss was reported: to the model, or to the caller.
    """

    def count(kills, begun, unknown=0):
        payments = [times for call, times in begun.items() if call.startswith("pay")]
        record_property("kills", kills)
        record_property("calls", len(begun))
        record_property("ran once", sum(times == 1 for times in begun.values()))
        record_property("repeatable, ran twice", sum(times == 2 for times in begun.values()) - payments.count(2))
        record_property("repeatable, ran more often", sum(times > 2 for times in begun.values()))
        record_property("payments, ran twice", sum(times > 1 for times in payments))
        record_property("told as unknown", unknown)

    return count


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Leave the collected tests out of every garbage collection, now and later; they stay until the end anyway."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def exit_quietly(runner, *error, leave=TestRunner.__exit__):
    """Leave anyio's runner, and read the exception of its task.

    Hypothesis ends an example by an exception that is no `Exception`; the task of the runner ends with it,
    and nobody reads it, so a later garbage collection would log it in the midst of another test.
    """
    task = runner._runner_task  # noqa: SLF001 - the runner gives no other way to its task
    leave(runner, *error)
    if task is not None and task.done() and not task.cancelled():
        task.exception()


VALIDATOR = otel_checks.Validator()
otel_checks.install(VALIDATOR)


@pytest.fixture(autouse=True)
def conventions(request, monkeypatch):
    """Check every span and every metric of the test against the table; with `--traced`, all tests have some."""
    if request.config.getoption("traced"):
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider(shutdown_on_exit=False))
        otel_checks.record_metrics(monkeypatch)
    yield
    assert VALIDATOR.take() == []


@pytest.fixture
def spans(monkeypatch):
    """The spans of the test."""
    return otel_checks.record_spans(monkeypatch)


@pytest.fixture
def metrics(monkeypatch):
    """A function that returns the points of a metric so far: attributes and value, the count for a histogram."""
    return otel_checks.record_metrics(monkeypatch)


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def fuzz_count(request):
    """How many inputs a fuzz test throws: a sample, more under `make cover`, the full size under `make fuzz`."""
    return FUZZ_COUNTS[size_of(request.config)]


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server of this process."""
    from postgres_server import PostgresServer

    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def forks():
    """Run the command, or a Python program, in a fork of a process that has loaded the package."""
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def distributions():
    """The sample distributions of tests/plugins, each really installed into a folder of its own."""
    return installed()


@pytest.fixture
def with_installed(distributions):
    """Return a function that makes distributions importable until the test ends."""
    with ExitStack() as stack:
        yield lambda *names: stack.enter_context(on_path(*(distributions[name] for name in names)))


@pytest.fixture
def short_termination(monkeypatch):
    """Kill a server on standard streams soon, if it does not end when it should: for servers that never do."""
    monkeypatch.setattr("toolmason.mcp_client.transport.stdio.TERMINATE_SECONDS", 0.2)


@pytest.fixture
def make_package(tmp_path, monkeypatch):
    """Write a package that can be imported while the test lasts: `make_package("shop", orders="source")`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    # A source that is changed within a second would be taken for the one that was compiled before.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def make(name="shop", init="", **sources):
        folder = tmp_path.joinpath(*name.split("."))
        folder.mkdir(parents=True, exist_ok=True)
        for above in [folder, *folder.parents][: name.count(".") + 1]:
            (above / "__init__.py").touch()
        (folder / "__init__.py").write_text(textwrap.dedent(init), "utf-8")
        for module, source in sources.items():
            (folder / f"{module}.py").write_text(textwrap.dedent(source), "utf-8")
        importlib.invalidate_caches()
        return folder

    yield make
    for name in set(sys.modules) - before:
        # A namespace package has no file.
        places = [getattr(sys.modules[name], "__file__", None), *getattr(sys.modules[name], "__path__", ())]
        if any(str(place).startswith(str(tmp_path)) for place in places):
            del sys.modules[name]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    session.config.stash[EXIT_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """End without finalization if Temporal's core is loaded: its threads may crash the interpreter on the way."""
    if "temporalio.bridge.temporal_sdk_bridge" in sys.modules and not hasattr(config, "workerinput"):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[EXIT_STATUS])
