"""The table of server options says what the code says."""

import inspect
import re

import pytest

from house.source import ROOT
from toolmason import McpServer
from toolmason.testing import FakeMcpServer

PAGE = ROOT / "docs" / "reference" / "mcp-servers.md"
OWN_OPTIONS = {"args", "env", "cwd", "headers", "auth", "faults", "name", "start", "listing"}


@pytest.mark.parametrize(
    "function", [McpServer.stdio, McpServer.http, McpServer.of, McpServer.from_config, FakeMcpServer]
)
def test_every_option_has_its_row_and_default(function):
    rows = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", PAGE.read_text("utf-8"), re.MULTILINE))

    defaults = {
        name: repr(parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not inspect.Parameter.empty and name not in OWN_OPTIONS
    }

    assert rows == defaults


@pytest.mark.parametrize("function", [McpServer.stdio, McpServer.http, McpServer.of])
def test_a_misspelt_option_is_refused_by_python(function):
    with pytest.raises(TypeError, match="unexpected keyword argument 'timeuot'"):
        function("files", "https://example.com/mcp", timeuot=3)
