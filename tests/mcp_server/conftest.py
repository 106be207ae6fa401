from collections.abc import Iterator

import pytest

from mcp_server.sample_server import Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as found:
        yield found
