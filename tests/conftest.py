"""What every test may use: the event loop's backend, how much a fuzz test throws, real plugins."""

from contextlib import ExitStack

import pytest
from hypothesis import settings

from installed import installed, on_path

# A deadline measures the machine, not the code; pytest-timeout bounds a test that hangs.
settings.register_profile("sample", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("full", deadline=None, max_examples=5_000)


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run fuzz and property tests at full size")


def pytest_configure(config):
    settings.load_profile("full" if config.getoption("full") else "sample")


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def fuzz_count(request):
    """How many inputs a fuzz test throws: a sample, or the full size under `make fuzz`."""
    return 100_000 if request.config.getoption("full") else 2_000


@pytest.fixture(scope="session")
def distributions(tmp_path_factory):
    """The sample distributions of tests/plugins, each really installed into a folder of its own."""
    return installed(tmp_path_factory.mktemp("distributions"))


@pytest.fixture
def with_installed(distributions):
    """Return a function that makes distributions importable until the test ends."""
    with ExitStack() as stack:
        yield lambda *names: stack.enter_context(on_path(*(distributions[name] for name in names)))
