"""Tools that a provider runs stand beside the others; a provider that has none says so before anything is sent."""

import pytest

from providers.judges import by_genai, objections
from providers.samples import CHATS, get_weather
from toolmason import Config, RemoteMcp, Toolbox, WebSearch, tool
from toolmason.errors import ConfigError, DefinitionError, DuplicateTool, UnsupportedProvider
from toolmason.models import ModelRequest
from toolmason.providers import NativeTool, codec

SERVER = RemoteMcp("crm", "https://crm.example/mcp", authorization="Bearer s3cret", description="Customers")


def encoded(provider, *tools):
    return codec(provider).encode(ModelRequest("x", Toolbox(get_weather, *tools)), "m")


@pytest.mark.row("MA-32")
@pytest.mark.parametrize(
    ("provider", "search", "expected"),
    [
        ("openai", WebSearch(), {"type": "web_search"}),
        ("openai", WebSearch(type="web_search_preview"), {"type": "web_search_preview"}),
        (
            "openai",
            WebSearch(city="Brno", country="CZ"),
            {"type": "web_search", "user_location": {"type": "approximate", "city": "Brno", "country": "CZ"}},
        ),
        (
            "anthropic",
            WebSearch(region="Moravia"),
            {
                "type": "web_search_20260318",
                "name": "web_search",
                "user_location": {"type": "approximate", "region": "Moravia"},
            },
        ),
        ("gemini", WebSearch(), {"googleSearch": {}}),
    ],
    ids=["openai", "old name", "place", "anthropic", "gemini"],
)
def test_web_search_is_each_providers_own(provider, search, expected):
    body = encoded(provider, search)

    assert body["tools"][-1] == expected
    assert objections(provider, body) == []


@pytest.mark.parametrize(
    ("provider", "tool", "words"),
    [
        ("openai-chat", WebSearch(), "openai-chat has no web search"),
        ("openai-chat", SERVER, "openai-chat cannot call MCP servers"),
        ("openai", WebSearch(type="bing"), "has no such search"),
        ("gemini", WebSearch(city="Brno"), "gemini does not support a search location"),
        ("anthropic", RemoteMcp("a", "https://a", require_approval="always"), "calls servers without approval"),
    ],
    ids=["search", "server", "type", "place", "approval"],
)
def test_a_provider_without_such_a_tool_is_an_error(provider, tool, words):
    with pytest.raises(DefinitionError, match=words):
        Toolbox(tool).definitions(provider)


@pytest.mark.row("MA-34")
def test_openai_is_told_of_an_mcp_server_in_its_words():
    body = encoded("openai", SERVER)

    assert body["tools"][-1] == {
        "type": "mcp",
        "server_label": "crm",
        "server_url": "https://crm.example/mcp",
        "server_description": "Customers",
        "authorization": "s3cret",
    }
    assert objections("openai", body) == []


def test_anthropic_is_told_of_an_mcp_server_in_two_places():
    body = encoded("anthropic", SERVER)

    assert body["mcp_servers"] == [
        {"type": "url", "name": "crm", "url": "https://crm.example/mcp", "authorization_token": "s3cret"}
    ]
    assert body["tools"][-1] == {"type": "mcp_toolset", "mcp_server_name": "crm"}
    assert objections("anthropic", body) == []


def test_gemini_is_told_of_an_mcp_server():
    made = Toolbox(SERVER).definitions("gemini")

    assert by_genai(encoded("gemini", SERVER)) == []  # the protos are older
    assert made[0]["mcpServers"][0]["streamableHttpTransport"]["headers"] == {"Authorization": "Bearer s3cret"}


def test_another_tool_of_a_provider_goes_to_it_alone():
    code = NativeTool("openai", {"type": "code_interpreter", "container": {"type": "auto"}})

    assert objections("openai", encoded("openai", code)) == []
    assert encoded("openai", code)["tools"][-1] == code.spec
    assert len(encoded("anthropic", code)["tools"]) == 1


@pytest.mark.parametrize("provider", CHATS)
def test_a_tool_of_a_provider_that_nobody_knows_is_an_error(provider):
    with pytest.raises(UnsupportedProvider, match="'opnai'"):
        Toolbox(NativeTool("opnai", {"type": "code_interpreter"})).definitions(provider)


def test_the_provider_of_a_tool_is_read_as_everywhere():
    assert Toolbox(NativeTool("OpenAI_Chat", {"type": "custom"})).definitions("openai-chat") == [{"type": "custom"}]


@pytest.mark.row("MA-31", "P17")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(WebSearch(), WebSearch(city="Brno"), id="searches"),
        pytest.param(SERVER, RemoteMcp("crm", "https://other.example/mcp"), id="servers"),
        pytest.param(NativeTool("openai", {"type": "x"}), NativeTool("openai", {"type": "x", "a": 1}), id="others"),
    ],
)
def test_two_of_one_name_are_an_error_that_shows_both(first, second):
    with pytest.raises(DuplicateTool) as caught:
        Toolbox(first) | Toolbox(second)

    assert repr(first) in str(caught.value)
    assert repr(second) in str(caught.value)


def test_one_that_is_given_twice_goes_out_once():
    code = NativeTool("openai", {"type": "code_interpreter", "container": {"type": "auto"}})

    made = Toolbox(WebSearch(), SERVER, code) | Toolbox(WebSearch(), SERVER, code)

    body = codec("openai").encode(ModelRequest("x", made), "m")
    assert [tool["type"] for tool in body["tools"]] == ["web_search", "mcp", "code_interpreter"]


def test_one_that_replaces_another_goes_out_alone():
    made = Toolbox(WebSearch(), SERVER)
    made.add(RemoteMcp("crm", "https://other.example/mcp"), replace=True)

    assert [item.name for item in made.native] == ["web_search", "crm"]
    assert made.native[1].url == "https://other.example/mcp"


@pytest.mark.row("MA-31")
def test_a_local_tool_of_the_same_name_is_an_error():
    def web_search(text: str) -> str:
        return text

    with pytest.raises(DuplicateTool, match="WebSearch"):
        Toolbox(WebSearch(), web_search)
    with pytest.raises(DuplicateTool, match="WebSearch"):
        Toolbox(web_search, WebSearch())


@pytest.mark.row("MA-31")
def test_code_wins_over_the_configuration():
    made = Toolbox(WebSearch(city="Brno"), config={"WebSearchTool.type": "default", "WebSearchTool.city": "Praha"})

    assert [item.city for item in made.native] == ["Brno"]


def test_a_secret_is_not_shown():
    assert "s3cret" not in repr(SERVER)


@pytest.mark.row("MA-34")
@pytest.mark.parametrize(
    ("name", "url"), [("crm", "crm.example"), ("", "https://crm.example"), ("Our CRM", "https://crm.example")]
)
def test_a_server_without_an_address_or_a_name_that_providers_take_is_an_error(name, url):
    """OpenAI refuses a request with a blank in a label. A configuration replaces it by `_`."""
    with pytest.raises(DefinitionError, match="a name without blanks and a URL"):
        RemoteMcp(name, url)


def test_the_configuration_switches_them_on():
    config = Config(
        {
            "WebSearchTool.type": "default",
            "WebSearchTool.city": "Brno",
            "MCP": {"name": "ours", "url": "https://ours.example/mcp"},
            "MCP_2": {"name": "theirs", "url": "https://theirs.example/mcp", "native": True},
        }
    )

    box = Toolbox(get_weather, config=config)

    assert [item.name for item in box.native] == ["web_search", "theirs"]
    assert box.native[0].city == "Brno"


def test_a_switch_that_is_neither_on_nor_off_is_an_error():
    with pytest.raises(ConfigError, match="is not a boolean"):
        Toolbox(config={"MCP": {"name": "a", "url": "https://a.example", "native": "perhaps"}})


def test_a_tool_that_a_provider_runs_is_nothing_to_call():
    box = Toolbox(get_weather, WebSearch())

    result = box.call_sync("web_search")

    assert result.error.code == "unknown_tool"


@pytest.mark.parametrize("given", ["s3cret", "Bearer s3cret", "bearer s3cret"])
def test_a_token_has_the_form_that_each_provider_wants(given):
    """Review D11: no one value fitted all providers."""
    server = RemoteMcp("crm", "https://crm.example/mcp", authorization=given)

    sent = {kind: codec(kind).encode(ModelRequest("x", [server]), "m") for kind in ("openai", "anthropic", "gemini")}

    assert sent["openai"]["tools"][0]["authorization"] == "s3cret"
    assert sent["anthropic"]["mcp_servers"][0]["authorization_token"] == given.split()[-1]
    transport = sent["gemini"]["tools"][0]["mcpServers"][0]["streamableHttpTransport"]
    assert transport["headers"] == {"Authorization": "Bearer s3cret"}


def test_another_scheme_is_sent_as_a_header_or_refused():
    server = RemoteMcp("crm", "https://crm.example/mcp", authorization="Basic dTpw")

    body = codec("openai").encode(ModelRequest("x", [server]), "m")

    assert body["tools"][0]["headers"] == {"Authorization": "Basic dTpw"}
    with pytest.raises(DefinitionError, match="anthropic sends only bearer tokens"):
        codec("anthropic").encode(ModelRequest("x", [server]), "m")


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("anthropic", {"type": "memory_20250818", "name": "memory"}),
        ("anthropic", {"type": "bash_20250124", "name": "bash"}),
        ("anthropic", {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}),
        ("anthropic", {"type": "computer_20251124", "name": "computer"}),
        ("openai", {"type": "computer_use_preview", "display_width": 1, "display_height": 1, "environment": "browser"}),
        ("openai", {"type": "local_shell"}),
        ("openai", {"type": "shell", "environment": {"type": "local"}}),
        ("openai", {"type": "apply_patch"}),
        ("gemini", {"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value.values())) if "type" in value else "",
)
def test_a_provider_tool_that_the_application_would_have_to_run_is_refused(kind, spec):
    """Review D13: its calls were answered with `unknown_tool`."""
    with pytest.raises(DefinitionError, match=f"{kind} does not run this tool, the application would have to"):
        codec(kind).encode(ModelRequest("x", [NativeTool(kind, spec)]), "m")


def test_a_shell_that_the_provider_runs_is_sent():
    shell = {"type": "shell", "environment": {"type": "container_auto"}}

    assert codec("openai").encode(ModelRequest("x", [NativeTool("openai", shell)]), "m")["tools"] == [shell]


def test_a_provider_tool_is_not_sent_beside_a_tool_of_its_name():
    """Review D13: the API rejects two tools of one name."""

    @tool
    def web_search(query: str) -> str:
        """Search."""
        return query

    with pytest.raises(DefinitionError, match="anthropic runs a tool named 'web_search', and the toolbox has another"):
        codec("anthropic").encode(ModelRequest("x", [web_search, WebSearch()]), "m")
    with pytest.raises(DuplicateTool, match="Two tools are named 'web_search'"):
        Toolbox(web_search, WebSearch())
