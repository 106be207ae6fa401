from collections.abc import Iterator

import pytest

from mcp_server.sample_server import Running, running


@pytest.fixture(scope="module", params=[True, False], ids=["short way", "long way"])
def server(request: pytest.FixtureRequest) -> Iterator[Running]:
    with running(fast=request.param) as found:
        yield found


@pytest.fixture(scope="module")
def one_server() -> Iterator[Running]:
    with running() as found:
        yield found
