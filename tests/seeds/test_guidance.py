"""MA-37: the advice of the seed is on a page whose tools follow it, and a check tells a tool that does not."""

import re

import pytest

from house.source import ROOT
from toolmason.build.check.find_files import find_target
from toolmason.build.check.run_checks import check
from toolmason.build.check.settings import CheckSettings

PAGE = ROOT / "docs" / "how-to" / "design-a-tool.md"
HEAD = "import os, requests\nfrom typing import Annotated\nfrom toolmason import tool\n"


def codes(path, text):
    path.write_text(text, "utf-8")
    report = check([find_target(str(path))], CheckSettings(), mode="static", strict=True)
    return [found.code for found in report.findings]


@pytest.mark.row("MA-37")
def test_the_tools_on_the_page_follow_its_advice(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    tools = "\n".join(re.sub(r"^(assert|for|    assert|box =).*\n", "", block, flags=re.MULTILINE) for block in blocks)

    assert tools.count("@tool") == 5
    assert codes(tmp_path / "page.py", tools) == []


@pytest.mark.row("MA-37")
@pytest.mark.parametrize(
    ("code", "tool"),
    [
        ("TM201", "@tool(name='find the orders!')\ndef f(): 'Find.'\n"),
        ("TM102", "@tool\ndef find(): ...\n"),
        ("TM101", "@tool\ndef find(x: str): 'Find.'\n"),
        ("TM110", "@tool\ndef find(x: Annotated[int, 'N'] = 'a'): 'Find.'\n"),
        ("TM305", "@tool\ndef find(api_key: Annotated[str, 'Key']): 'Find.'\n"),
        ("TM309", "@tool\ndef delete_order(): 'Delete.'\n"),
        ("TM310", "@tool\ndef find(): 'You must call this tool first.'\n"),
        ("TM312", "@tool\ndef find(x: Annotated[str, 'File']):\n    'Find.'\n    return open(x).read()\n"),
        ("TM311", "@tool\nasync def find():\n    'Find.'\n    return requests.get('https://example.com').text\n"),
        ("TM307", "@tool\ndef find(x: Annotated[str, 'Command']):\n    'Find.'\n    os.system(x)\n"),
    ],
)
def test_a_tool_against_the_advice_is_told(tmp_path, code, tool):
    assert code in codes(tmp_path / "app.py", HEAD + tool)
    assert f"[{code}](../reference/rules/{code}.md)" in PAGE.read_text("utf-8")
