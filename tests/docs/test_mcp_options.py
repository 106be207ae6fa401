"""The table of server options says what the code says."""

import dataclasses
import re

from house.source import ROOT
from toolmason.mcp_client.server_options import ServerOptions, ServerSpec

PAGE = ROOT / "docs" / "reference" / "mcp-servers.md"


def test_every_option_has_its_row_and_default():
    rows = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", PAGE.read_text("utf-8"), re.MULTILINE))
    fields = {field.name: field for field in dataclasses.fields(ServerSpec)}

    defaults = {
        name: repr(
            fields[name].default_factory() if fields[name].default is dataclasses.MISSING else fields[name].default
        )
        for name in ServerOptions.__annotations__
    }

    assert rows == defaults
