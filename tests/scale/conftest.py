"""A Temporal server for the tests of this folder."""

import uuid

import pytest

from scale.temporal_server import Server
from toolmason.scale import TemporalRuntime


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = Server(tmp_path_factory.mktemp("temporal"))
    made.wait()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def runtime(server):
    """A connection for all tests, because the workers of a new one need a second."""
    made = TemporalRuntime(server.address, lease=5)
    yield made
    made.close()


@pytest.fixture
def run():
    return f"run {uuid.uuid4().hex[:8]}"
