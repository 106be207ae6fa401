"""Tools that a provider loads only when its own search finds them."""

import pytest

from providers.judges import objections
from toolmason import Toolbox, tool
from toolmason.errors import ConfigError
from toolmason.models import ModelRequest
from toolmason.providers import codec


@tool
def get_weather(city: str) -> str:
    """Current weather in a city."""
    return city


@tool(name="orders.cancel")
def cancel(order: str) -> str:
    """Cancel an order."""
    return order


BOX = Toolbox(get_weather, cancel)
SEARCHES = {
    "openai": {"type": "tool_search"},
    "anthropic": {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
}


@pytest.mark.parametrize("provider", SEARCHES)
def test_deferred_tools_are_marked_and_the_search_stands_first(provider):
    request = ModelRequest("x", BOX, None, {"defer": ["orders.cancel", "gone"]})

    body = codec(provider).encode(request, "m")

    search, *tools = body["tools"]
    assert search == SEARCHES[provider]
    assert [(tool["name"], tool.get("defer_loading", False)) for tool in tools] == [
        ("get_weather", False),
        ("orders_cancel", True),
    ]
    assert objections(provider, body) == []


@pytest.mark.parametrize("provider", SEARCHES)
def test_a_tool_that_must_be_called_is_not_deferred(provider):
    request = ModelRequest("x", BOX, "orders.cancel", {"defer": ["orders.cancel"]})

    body = codec(provider).encode(request, "m")

    assert not any("defer_loading" in tool for tool in body["tools"])
    assert SEARCHES[provider] not in body["tools"]


@pytest.mark.parametrize("provider", ["openai-chat", "gemini"])
def test_a_provider_without_a_search_says_so(provider):
    with pytest.raises(ConfigError, match="has no built-in tool search"):
        codec(provider).encode(ModelRequest("x", BOX, None, {"defer": ["get_weather"]}), "m")


def test_what_anthropic_found_goes_back_as_it_came():
    found = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25", "input": {"query": "cancel"}},
        {
            "type": "tool_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {
                "type": "tool_search_tool_search_result",
                "tool_references": [{"type": "tool_reference", "tool_name": "orders_cancel"}],
            },
        },
        {"type": "tool_use", "id": "toolu_1", "name": "orders_cancel", "input": {"order": "A-17"}},
    ]
    made = codec("anthropic")
    request = ModelRequest("Cancel A-17", BOX, None, {"defer": ["orders.cancel"]})
    reply = made.decode(
        {"content": found, "stop_reason": "tool_use", "usage": {}}, made.fit_request_tools(request).names
    )

    again = ModelRequest([*request.messages, reply.message], BOX, None, request.options)
    body = made.encode(again, "m")

    assert [call.name for call in reply.calls] == ["orders.cancel"]
    assert body["messages"][1]["content"] == found
    assert objections("anthropic", body) == []


@pytest.mark.parametrize("given", [True, 5, [["a"]], [None], {"a": 1}], ids=repr)
def test_names_that_are_none_are_refused(given):
    with pytest.raises(ConfigError, match=r"'defer': .* must be a string or a list of strings"):
        codec("openai").encode(ModelRequest("x", BOX, None, {"defer": given}), "m")
