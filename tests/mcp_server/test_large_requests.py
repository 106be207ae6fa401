"""A large request is read and validated off the event loop, a few times at most."""

import json
import sys
import threading
from collections import Counter
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, PlainSerializer
from pydantic_core import ValidationError

from mcp_server.sample_server import ACCEPT, running
from toolmason import Param, Retry, Toolbox, ToolContext, tool
from toolmason._core.arguments.bind import LargeArguments
from toolmason._core.define.tool import compile_tool
from toolmason._core.values.policy import EngineSettings
from toolmason.errors import InvalidArguments
from toolmason.mcp_client.transport.framing import MAX_KEYS, MAX_PARTS, UnreadableMessage, parse_large_json
from toolmason.mcp_server.http.replay import SessionManager

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
async def placed(
    place: Annotated[str, Param(schema={"type": "string", "x-mcp-header": "Place"})], items: list[int], ctx: ToolContext
) -> str:
    await ctx.progress(1, 2, "half")
    return f"{len(items)} in {place}"


ADDRESS = {
    "type": "object",
    "properties": {"city": {"type": "string", "x-mcp-header": "City"}, "lines": {"type": "array"}},
}


@tool
async def sent(address: Annotated[dict[str, Any], Param(schema=ADDRESS)]) -> str:
    return f"{len(address['lines'])} to {address['city']}"


@tool
async def quoted(items: Any) -> str:
    raise ValueError(f"no {items}")


@pytest.fixture(scope="module")
def server():
    with running(Toolbox(total, emptied, emptied_again, plain, paid, returned, placed, sent, quoted)) as found:
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


PROGRESS = {"progressToken": "p"}


@pytest.mark.parametrize("in_session", [False, True])
def test_large_arguments_do_not_pass_through_the_sdk(server, monkeypatch, in_session):
    sizes = []
    handle = SessionManager.handle_request

    async def note_size(manager, scope, receive, send):
        async def receive_noted():
            message = await receive()
            sizes.append(len(message.get("body", b"")))
            return message

        await handle(manager, scope, receive_noted, send)

    monkeypatch.setattr(SessionManager, "handle_request", note_size)
    params = {"name": "placed", "arguments": {"place": "Oslo", "items": LARGE}}
    headers = {"mcp-param-place": "Oslo"}
    if in_session:
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        session = server.ask_in_session("initialize", opening).headers["mcp-session-id"]
        headers["mcp-session-id"] = session
        answer = server.ask_in_session("tools/call", {**params, "_meta": PROGRESS}, headers)
    else:
        answer = server.ask("tools/call", params, meta=PROGRESS, headers=headers)

    assert answer.json["result"]["content"][0]["text"] == "60000 in Oslo"
    assert [event["method"] for event in answer.events[:-1]] == ["notifications/progress"]
    assert 0 < max(sizes) < 1_000


@pytest.mark.parametrize(
    ("name", "arguments", "header"),
    [
        ("placed", {"place": "Oslo", "items": LARGE}, "mcp-param-place"),
        ("sent", {"address": {"city": "Oslo", "lines": LARGE}}, "mcp-param-city"),
    ],
)
def test_large_arguments_are_compared_with_headers(server, name, arguments, header):
    params = {"name": name, "arguments": arguments}
    answers = [server.ask("tools/call", params, headers={header: place} if place else {}) for place in ("Rome", "")]

    assert [answer.status for answer in answers] == [400, 400]
    assert server.call(name, arguments, headers={header: "Oslo"})["content"][0]["text"].startswith("60000 ")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "plain", "x": [[]] * 10_001, "arguments": {"text": "x" * 200_000}}),
        ("prompts/get", {"name": "x", "arguments": {"text": "x" * 200_000, "y": [[]] * 10_001}}),
    ],
)
def test_a_large_message_has_few_parts_outside_of_the_arguments_of_a_call(server, method, params):
    answer = server.ask(method, params, id=7)

    assert (answer.status, answer.json["id"]) == (400, 7)
    assert "more than 20,000 brackets and colons outside of the arguments" in answer.json["error"]["message"]


def test_an_exception_that_quotes_a_large_request_is_cut_before_it_is_searched_for_secrets(server, monkeypatch):
    lengths = []
    monkeypatch.setattr("toolmason._secrets.mask_values", lambda text, secrets: lengths.append(len(text)) or text)
    found = server.call("quoted", {"items": LARGE})

    assert found["isError"] is True
    assert lengths
    assert max(lengths) < 40_000


class Part(BaseModel):
    n: int


class Whole(BaseModel):
    parts: dict[str, list[Part]]


@tool
async def gather(parts: list[Part]) -> int:
    return len(parts)


@tool
async def weigh(whole: Whole) -> int:
    return len(whole.parts)


@tool(flatten=True)
async def weigh_flat(whole: Whole) -> int:
    return len(whole.parts)


@tool
async def join(parts: list[tuple[int, int]], **others: list[int]) -> int:
    return len(parts) + len(others)


def get_inputs(used):
    return compile_tool(Toolbox(used)[used.__name__]).inputs


VALID = {
    gather: {"parts": [{"n": 1}] * 100},
    weigh: {"whole": {"parts": {"a": [{"n": 1}] * 100}}},
    weigh_flat: {"parts": {"a": [{"n": 1}] * 100}},
    join: {"parts": [[1, 2]] * 100, "other": [1, 2, 3]},
}


@pytest.mark.parametrize("used", VALID, ids=lambda used: used.__name__)
def test_validation_of_large_arguments_lets_other_threads_run_at_each_item(used):
    """An interpreter switches threads only where Python code runs; pydantic's is Rust."""
    inputs, text, turns = get_inputs(used), json.dumps(VALID[used]), 0
    expected = inputs.validate_json(text, strict=True)
    validate = inputs.large.validate_json

    def note(frame, event, function):
        nonlocal turns
        turns += event == "call"

    sys.setprofile(note)
    try:
        found = validate(text, strict=True)
    finally:
        sys.setprofile(None)

    assert found == expected
    assert turns >= 100


WRONG = {
    gather: {"parts": [{"n": "x"}] * 5_000},
    weigh: {"whole": {"parts": {str(n): [{"n": "x"}] * 3 for n in range(2_000)}}},
    weigh_flat: {"parts": {"a": [1] * 5_000}},
    join: {"parts": [], "other": ["x"] * 5_000},
}


@pytest.mark.parametrize("used", WRONG, ids=lambda used: used.__name__)
def test_validation_of_large_arguments_stops_at_the_first_wrong_item(used):
    with pytest.raises(ValidationError) as caught:
        get_inputs(used).large.validate_json(json.dumps(WRONG[used]), strict=True)

    assert caught.value.error_count() == 1


def test_the_place_of_a_wrong_item_far_back_in_large_arguments_is_told(server):
    text = server.call("total", {"numbers": [*LARGE, "x"]})["content"][0]["text"]

    assert "too large to list every problem" in text
    assert "$.numbers[60000]: input should be a valid integer" in text


def test_many_unknown_keys_are_a_few_problems():
    arguments = LargeArguments({f"k{number}": "x" * 100 for number in range(5_000)})
    arguments.bind(get_inputs(refuse), "refuse", EngineSettings())

    with pytest.raises(InvalidArguments) as caught:
        arguments.take()

    assert len(caught.value.problems) <= 1_001


@tool(extra="forbid")
async def refuse(text: str = "") -> str:
    return text


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
    parts = 2 * (opening.count("[") + opening.count("{")) + opening.count(":")
    text = ",".join([opening] * (MAX_PARTS // parts + 1))
    headers = {"content-type": "application/json", "accept": ACCEPT}
    answer = server.send(f'{{"jsonrpc":"2.0","id":7,"method":"tools/list","x":[{text}]}}'.encode(), headers)

    assert answer.status == 400
    assert answer.json["id"] == 7
    assert "more than 660,000 brackets and colons" in answer.json["error"]["message"]


def keyed(value: str, count: int) -> str:
    return "{" + ",".join(f'"{number:x}":{value}' for number in range(count)) + "}"


@pytest.mark.parametrize("value", ["1", "[]", '{"":[]}', "[[[[[]]]]]"])
def test_an_object_with_more_keys_than_the_parser_reads_at_once_is_refused(value):
    found = parse_large_json(keyed(value, MAX_KEYS + 1).encode())

    assert isinstance(found, UnreadableMessage)
    assert "more than 150,000 keys" in found.reason or "more than 660,000 brackets" in found.reason


def test_as_many_keys_in_several_objects_are_read():
    text = f"[{keyed('1', MAX_KEYS // 2)},{keyed('[]', MAX_KEYS // 2)},{keyed('1', MAX_KEYS // 2)}]"

    assert len(parse_large_json(text.encode())) == 3


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
