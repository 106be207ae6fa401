"""What a server, a configuration or a network could do to us: threats T3 to T20 of the threat table, by name."""

import ast
import re
import sys
from pathlib import Path

import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthClientMetadata

from adversaries.raw_http import served
from house.source import parse_tree
from toolmason import McpServer, Toolbox
from toolmason._wire import LineSplitter
from toolmason.errors import ConfigError, DefinitionError
from toolmason.mcp_client.transport.framing import (
    MAX_LINE_BYTES,
    UnreadableMessage,
    find_id,
    parse_message,
    prune,
)
from toolmason.mcp_client.transport.sanitize import find_hidden_character, find_tool_problem

SOURCE = Path(__file__).parents[2] / "src" / "toolmason"
RAW = str(Path(__file__).parents[1] / "adversaries" / "raw_stdio.py")
MALFORMED = ["http://[::1/", "http://\u2100.com/", "http://x:abc/", "http://x:99999/"]
GOOD = {"name": "echo", "description": "Echo.", "inputSchema": {"type": "object"}}


def test_t3_nothing_is_ever_run_through_a_shell():
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        assert "shell=True" not in text, path
        names = {ast.unparse(node.func) for node in ast.walk(parse_tree(text)) if isinstance(node, ast.Call)}
        assert not names & {"os.system", "os.popen", "subprocess.getoutput", "asyncio.create_subprocess_shell"}, path


@pytest.mark.parametrize("field", ["name", "command", "argument", "variable"])
@pytest.mark.parametrize(
    "poison", ["; touch {}", "& touch {}", "$(touch {})", "`touch {}`", "| touch {}", "\n touch {}"]
)
async def test_t3_what_is_in_a_configuration_is_never_run_as_a_command(field, poison, tmp_path):
    mark = tmp_path / "mark"
    text = poison.format(mark)
    words = {"name": "raw", "command": sys.executable, "args": [RAW, "plain"], "env": {}}
    if field == "name":
        with pytest.raises(DefinitionError):
            McpServer.stdio(text, sys.executable)
        return
    if field == "command":
        words["command"] = text
    elif field == "argument":
        words["args"] = [RAW, text]
    else:
        words["env"] = {"X": text}

    async with Toolbox(McpServer.stdio(words["name"], words["command"], words["args"], env=words["env"])) as box:
        await box.list()

    assert not mark.exists()


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://x/y",
        "-x",
        "javascript:alert(1)",
        "http://",
        "//host/x",
        "http://u:p@h/mcp",
        "",
        *MALFORMED,
    ],
)
def test_t3_an_address_is_http_or_nothing(url):
    with pytest.raises(DefinitionError):
        McpServer.http("web", url)
    with pytest.raises(ConfigError):
        McpServer.from_config({"mcpServers": {"web": {"url": url}}})


HIDDEN = [
    "\u200b",
    "\u200e",
    "\u202e",
    "\u2066",
    "\ufeff",
    "\u00ad",
    "\U000e0041",
    "\x00",
    "\x1b",
    "\x7f",
    "\ud800",
    "\ue000",
    "\u034f",
    "\u115f",
    "\u1160",
    "\u17b4",
    "\u180b",
    "\u2028",
    "\u2029",
    "\u2800",
    "\u3164",
    "\uffa0",
    "\ufe00",
    "\ufe0e",
    "\U000e0100",
    "\U000e01ef",
    "\U0001d173",
    "\u200d",
    "\ufe0f",
    "\r",
    "\x85",
]


@pytest.mark.parametrize("where", ["name", "title", "description"])
@pytest.mark.parametrize("character", HIDDEN, ids=lambda c: f"U+{ord(c):04X}")
def test_t4_hidden_characters_are_refused(where, character):
    assert "hidden character" in find_tool_problem({**GOOD, where: f"ordinary{character}text"})


@pytest.mark.parametrize(
    "character", [c for c in [*HIDDEN, "\x08", "\x0c", "\x7f"] if c != "\ud800"], ids=lambda c: f"U+{ord(c):04X}"
)
def test_t4_hidden_characters_in_schemas_and_other_fields_are_refused(character):
    text = f"ordinary{character}text"

    for field in (
        {"inputSchema": {"type": "object", "description": text}},
        {"outputSchema": {"type": "object", "properties": {text: {}}}},
        {"_meta": {text: 1}},
        {"annotations": {"title": text}},
    ):
        assert "hidden character" in find_tool_problem({**GOOD, **field})


@pytest.mark.parametrize("text", ['"quoted"', "a\\b", "two\nlines\tand a tab", "\\u0007", "日本語"])
def test_t4_ordinary_text_in_schemas_and_other_fields_is_accepted(text):
    schema = {"type": "object", "properties": {text: {"type": "string", "description": text}}}

    assert find_tool_problem({**GOOD, "inputSchema": schema, "_meta": {text: text}}) is None


@pytest.mark.parametrize(
    "text",
    ["Ordinary.", "Two\nlines\tand a tab", "Žluťoučký kůň", "日本語", "👩‍💻 works", "naïve café", "Two\r\nlines"],
)
def test_t4_ordinary_text_is_not(text):
    assert find_hidden_character(text) is None


@pytest.mark.parametrize("text", ["🏳️‍🌈", "👨🏽‍⚕️ sees", "❤️‍🔥", "1️⃣ first", "‼️", "\u2139\ufe0f note", "☀️☀️", "क्‍ष", "↔️"])
def test_t4_marks_within_emoji_and_letters_are_ordinary(text):
    assert find_hidden_character(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "a" + "\u200d\ufe0f" * 40,
        "☀\ufe0f\ufe0f",
        "☀\u200d\u200d☀",
        "a\ufe0fb\ufe0f",
        "\ufe0f",
        "\u200d☀",
        "☀\u200d",
        "☀\u200dtext",
        "e\u0301\ufe0f",
    ],
)
def test_t4_marks_in_rows_or_after_letters_are_hidden(text):
    assert find_hidden_character(text) in ("\u200d", "\ufe0f")


@pytest.mark.parametrize("where", ["name", "title"])
@pytest.mark.parametrize("character", ["\n", "\t", "\r\n"])
def test_t4_a_name_has_one_line(where, character):
    assert "hidden character" in find_tool_problem({**GOOD, where: f"two{character}lines"})


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({**GOOD, "name": "x" * 129}, "longer than 128 bytes"),
        ({**GOOD, "description": "x" * 5000}, "longer than 4096 bytes"),
        ({**GOOD, "inputSchema": {"type": "object", "description": "x" * 70_000}}, "longer than 65536 bytes"),
        ({**GOOD, "inputSchema": {"type": "array"}}, "not an object"),
        ({**GOOD, "inputSchema": {"type": "object", "properties": ["a"]}}, "not a JSON Schema"),
        ({**GOOD, "inputSchema": {"type": "object", "default": nested(70)}}, "nested deeper than 32 levels"),
        ({**GOOD, "inputSchema": {"type": "object", "default": nested(600)}}, "nested deeper than 32 levels"),
        ({**GOOD, "inputSchema": {"allOf": [{}] * 3000, "type": "object"}}, "more than 2000 subschemas"),
        ({**GOOD, "inputSchema": {"type": "object", "$ref": "https://x/y"}}, "which is external"),
        ({**GOOD, "outputSchema": {"items": {"$dynamicRef": "other.json"}}}, "which is external"),
        ({**GOOD, "outputSchema": []}, "not an object"),
        ({**GOOD, "description": 7}, "not a string"),
        ({"inputSchema": {}}, "no name"),
        (None, "not an object"),
    ],
)
def test_t4_t14_t15_a_definition_that_does_harm_is_refused(entry, reason):
    assert reason in find_tool_problem(entry)


async def test_t6_a_server_cannot_take_the_name_of_a_local_tool():
    from toolmason import tool

    @tool
    def echo(text: str) -> str:
        """Echo here."""
        return f"local {text}"

    async with Toolbox(echo, McpServer.stdio("raw", sys.executable, [RAW, "plain"])) as box:
        assert (await box.call("echo", {"text": "x"})).text == "local x"


async def test_t7_a_token_goes_to_its_own_server_alone():
    with served("plain") as one, served("plain") as two:
        servers = [
            McpServer.http("one", one.url, headers={"Authorization": "Bearer first"}),
            McpServer.http("two", two.url, auth=lambda context: "second"),
        ]
        async with Toolbox(*servers) as box:
            await box.call("echo", {"text": "x"})
            await box.call("two__echo", {"text": "x"})

    assert set(one.tokens) == {"Bearer first"}
    assert set(two.tokens) == {"Bearer second"}


@pytest.mark.parametrize(
    "path", ["/.well-known/oauth-protected-resource", "/admin/secret", "/", "/.well-known/openid-configuration?all=1"]
)
async def test_f45_t8_d10_metadata_of_a_server_is_not_fetched_from_elsewhere(path):
    class Kept:
        async def get_tokens(self):
            return None

        async def get_client_info(self):
            return None

        async def set_tokens(self, tokens):
            pass

        async def set_client_info(self, client_info):
            pass

    with served("plain") as other, served("metadata elsewhere") as server:
        server.elsewhere = other.url.removesuffix("/mcp") + path
        metadata = OAuthClientMetadata(redirect_uris=["http://localhost:1/x"])
        auth = OAuthClientProvider(server.url, metadata, Kept())
        async with Toolbox(McpServer.http("raw", server.url, auth=auth)) as box:
            assert box.tools == []

    assert other.seen == []


def test_secrets_of_a_server_are_not_shown():
    server = McpServer.http("web", "http://localhost/mcp", headers={"X-Key": "hush"}, auth=lambda context: "hush")
    process = McpServer.stdio("p", "x", env={"KEY": "hush"})

    assert "hush" not in repr(server) + repr(process)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_t12_lines_are_the_same_however_they_arrive(size):
    data = b'{"a": 1}\n\n{"b": "\xc5\xbe"}\r\nrest'

    lines = LineSplitter(MAX_LINE_BYTES)
    found = [line for start in range(0, len(data), size) for line in lines.feed(data[start : start + size])]

    assert found == [b'{"a": 1}', b"", b'{"b": "\xc5\xbe"}\r']


def test_t12_a_line_over_the_cap_is_not_kept():
    lines = LineSplitter(max_bytes=1000)
    for _ in range(10):
        list(lines.feed(b"x" * 100))
    assert lines.oversized is None

    for _ in range(1000):
        assert list(lines.feed(b"x" * 1000)) == []

    assert lines.oversized.size == 1_001_000
    assert len(lines.oversized.start + lines.oversized.end) <= 2 * 64 * 1024
    assert MAX_LINE_BYTES == 16 * 1024 * 1024


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": 7, "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested deeper than 128"),
        (b'{"id": 7, "x": NaN}', "not valid JSON"),
        (b'{"id": 7, "x": "\\ud800"}', "not valid JSON"),
        (b'{"id": 7, "x": "\xff"}', "not valid JSON"),
        (b'{"id": 7, "x": 1', "not valid JSON"),
    ],
    ids=["deep", "nan", "surrogate", "byte", "cut"],
)
def test_t13_a_message_that_cannot_be_read_still_says_whom_it_was_for(line, reason):
    found = parse_message(line)

    assert isinstance(found, UnreadableMessage)
    assert reason in found.reason
    assert found.id == 7


@pytest.mark.parametrize("text", [b"{}", b"{'id': 1}", b'{"id": {}}', b'{"id": ', b'"id": "' + b"x" * 500])
def test_an_id_that_is_none_is_not_made_up(text):
    assert find_id(text) is None


def test_of_a_list_only_what_is_too_deep_is_lost():
    deep = b"[" * 500 + b"]" * 500
    text = b'{"id": 1, "result": {"tools": [{"name": "a[]{}\\"", "x": 1}, {"name": "b", "x": ' + deep + b"}]}}"

    found = parse_message(text, {1})

    assert [tool["name"] for tool in found["result"]["tools"]] == ['a[]{}"', "b"]
    assert re.fullmatch(rb".*null.*", prune(text), re.DOTALL)
