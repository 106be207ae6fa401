"""A large request is read and validated off the event loop, a few times at most."""

import json
import sys
import threading
from collections import Counter
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, PlainSerializer

from mcp_server.sample_server import ACCEPT, running
from toolmason import Retry, Toolbox, tool
from toolmason._core.arguments.bind import LargeArguments
from toolmason._core.define.tool import compile_tool
from toolmason._core.values.policy import EngineSettings
from toolmason.mcp_client.transport.framing import MAX_CONTAINERS, parse_large_json

THREADS: dict[str, int] = {}
LARGE = list(range(60_000))
"""About 400 KiB as JSON."""


def note_thread(value: Any) -> Any:
    THREADS["validated"] = threading.get_ident()
    return value


@tool
async def total(numbers: Annotated[list[int], AfterValidator(note_thread)]) -> int:
    THREADS["run"] = threading.get_ident()
    return sum(numbers)


@tool
async def emptied(items: Any) -> int:
    found = len(items)
    items.clear()
    return found


TRIES: list[int] = []


@tool(idempotent=True, retry=Retry(3, delay=0.0))
async def emptied_again(items: Any) -> int:
    TRIES.append(len(items))
    items.clear()
    if len(TRIES) < 3:
        raise ConnectionError
    return len(TRIES)


@tool
async def plain(text: str = "") -> str:
    return text


@tool(approval=True)
async def paid(numbers: Annotated[list[int], AfterValidator(note_thread)]) -> int:
    return len(numbers)


@tool
async def returned(items: Any) -> Annotated[Any, PlainSerializer(note_thread)]:
    THREADS["run"] = threading.get_ident()
    return items


@tool
async def quoted(items: Any) -> str:
    raise ValueError(f"no {items}")


@pytest.fixture(scope="module")
def server():
    with running(Toolbox(total, emptied, emptied_again, plain, paid, returned, quoted)) as found:
        yield found


@pytest.mark.parametrize("count", [10, 60_000], ids=["small", "large"])
def test_large_arguments_are_validated_off_the_loop(server, count):
    found = server.call("total", {"numbers": LARGE[:count]})

    assert found["structuredContent"] == {"result": sum(LARGE[:count])}
    assert (THREADS["validated"] == THREADS["run"]) is (count == 10)


@pytest.mark.parametrize("count", [10, 60_000], ids=["small", "large"])
def test_an_approval_of_large_arguments_is_prepared_off_the_loop(server, count):
    server.call("total", {"numbers": [1]})
    found = server.call("paid", {"numbers": LARGE[:count]})

    assert "approval" in found["content"][0]["text"]
    assert (THREADS["validated"] == THREADS["run"]) is (count == 10)


@pytest.mark.parametrize("count", [10, 60_000], ids=["small", "large"])
def test_what_a_large_request_returns_is_written_off_the_loop(server, count):
    assert server.call("returned", {"items": LARGE[:count]})["isError"] is False
    assert (THREADS["validated"] == THREADS["run"]) is (count == 10)


def test_an_exception_that_quotes_a_large_request_is_cut_before_it_is_searched_for_secrets(server, monkeypatch):
    lengths = []
    monkeypatch.setattr("toolmason._secrets.mask_values", lambda text, secrets: lengths.append(len(text)) or text)
    found = server.call("quoted", {"items": LARGE})

    assert found["isError"] is True
    assert lengths
    assert max(lengths) < 40_000


def test_large_arguments_that_do_not_fit_are_told(server):
    found = server.call("total", {"numbers": ["x", *LARGE]})

    assert found["isError"] is True
    assert "valid integer" in found["content"][0]["text"]


@pytest.mark.parametrize("value", [LARGE, [[[{"a": [1] * 5}]]] * 20_000, {f"k{n}": n for n in range(30_000)}])
def test_a_large_argument_that_is_unknown_is_dropped_like_a_small_one(server, value):
    assert server.call("plain", {"text": "hi", "more": value})["structuredContent"] == {"result": "hi"}


def test_each_attempt_has_values_of_its_own(server):
    assert server.call("emptied", {"items": LARGE})["structuredContent"] == {"result": len(LARGE)}
    assert server.call("emptied_again", {"items": LARGE})["structuredContent"] == {"result": 3}
    assert [len(LARGE)] * 3 == TRIES


def test_an_unknown_tool_with_large_arguments_is_told(server):
    answer = server.ask("tools/call", {"name": "nothing", "arguments": {"x": LARGE}})

    assert answer.json["error"]["code"] == -32602


@pytest.mark.parametrize("opening", ["[]", "{}", '[{"a":[]}]'])
def test_more_parts_than_the_parser_reads_at_once_are_refused(server, opening):
    parts = opening.count("[") + opening.count("{")
    text = ",".join([opening] * (MAX_CONTAINERS // parts + 1))
    headers = {"content-type": "application/json", "accept": ACCEPT}
    answer = server.send(f'{{"jsonrpc":"2.0","id":7,"method":"tools/list","x":[{text}]}}'.encode(), headers)

    assert answer.status == 400
    assert answer.json["id"] == 7
    assert "more than 600,000 objects and lists" in answer.json["error"]["message"]


def test_brackets_in_strings_are_no_parts(server):
    assert server.call("plain", {"text": "[{" * 700_000})["isError"] is False


READERS = ("from_json", "to_json", "validate_json", "validate_python", "loads", "scan_once")


@pytest.mark.parametrize("used", [total, emptied, plain], ids=lambda used: used.__name__)
@pytest.mark.parametrize("value", [LARGE, ["x"] * 60_000, [[[1]]] * 20_000], ids=["numbers", "texts", "lists"])
def test_a_large_request_is_read_a_few_times_at_most(used, value):
    body, counts = json.dumps({"numbers": value, "items": value, "more": value}).encode(), Counter[str]()
    inputs = compile_tool(Toolbox(used)[used.__name__]).inputs

    def note(frame, event, function):
        if event == "c_call" and function.__name__ in READERS:
            counts[function.__name__] += 1

    sys.setprofile(note)
    try:
        LargeArguments(parse_large_json(body)).bind(inputs, used.__name__, EngineSettings())
    finally:
        sys.setprofile(None)

    assert sum(counts.values()) <= 9
