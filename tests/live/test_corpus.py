"""The functions and calls of the BFCL corpus, in every format: accepted by the judges, read back as they were."""

import json
import random
import re
from pathlib import Path

import jsonschema
import pytest

from live.corpus import functions, normal, questions
from providers.judges import objections
from providers.recordings import sse
from providers.samples import CHATS
from toolmason import Message, ToolCall, ToolDefinition, ToolResult
from toolmason._core.arguments.nulls import NullSearch
from toolmason.models import ModelRequest
from toolmason.models.http.sse import EventStream
from toolmason.providers import codec, verdict
from toolmason.providers.content_parts import get_arguments_object

pytestmark = pytest.mark.live
KNOWN_BAD = Path(__file__).with_name("known_bad.txt")
REASON = re.compile(r"\$\S*: any (value|key|item) is allowed here")


def definitions():
    return [ToolDefinition(f["name"], f["description"], f["parameters"]) for f in functions()]


def truths():
    """Every call that answers a question: its function's schema, and the first acceptable value of each argument."""
    return ((name, arguments, schema) for _, name, arguments, schema in answers())


def answers():
    """The same, each with its question."""
    for question in questions():
        known = {f["name"]: normal(f["parameters"]) for f in question["function"]}
        for call in question["calls"]:
            for name, arguments in call.items():
                yield question, name, plain(arguments), {"type": "object", **known[name]}


def plain(accepted):
    """The first that is accepted of each value; a text of no letters stands for what may be left out."""
    chosen = {key: values[0] if isinstance(values, list) and values else values for key, values in accepted.items()}
    return {key: inner(value) for key, value in chosen.items() if value != ""}


def inner(value):
    """The corpus writes what is acceptable inside of an object as lists, too."""
    if isinstance(value, list):
        return [inner(part) for part in value]
    return plain(value) if isinstance(value, dict) else value


def test_the_corpus_is_the_one_that_was_measured():
    assert (len(functions()), len(questions()), sum(1 for _ in truths())) == (3258, 3641, 3302)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("provider", CHATS)
def test_every_function_is_accepted_by_the_judges(provider):
    made, objected = codec(provider), {}
    for tool in definitions():
        body = made.encode(ModelRequest("x", [tool]), "m")
        if found := objections(provider, body):
            objected[tool.name] = found

    assert objected == {}


def test_none_would_change_its_meaning():
    rejected = {(p, tool.name) for p in CHATS for tool in definitions() if verdict(tool, p).status == "rejected"}

    assert rejected == set()


def test_nearly_all_are_strict_for_openai_and_the_rest_say_why():
    found = [verdict(tool, "openai").narrowed for tool in definitions()]

    loose = [narrowed.reason for narrowed in found if not narrowed.strict]

    contradictory = [reason for reason in loose if reason.endswith("`enum` is described but not enforced")]
    others = [reason for reason in loose if reason not in contradictory]
    assert 1 - len(loose) / len(found) >= 0.94
    assert len(contradictory) == 23  # their values have another type than the parameter
    assert [reason for reason in others if not REASON.fullmatch(reason)] == []


@pytest.mark.parametrize("provider", CHATS)
def test_every_call_is_read_back_as_it_was(provider):
    made = codec(provider)
    for name, arguments, _ in truths():
        names = made.fit_tools((ToolDefinition(name, "d", {"type": "object"}),), ()).names
        asked = Message("assistant", (), [ToolCall("c", name, json.dumps(arguments))])
        history = [Message("user", "x"), asked, Message("tool", results=[ToolResult("c", name, text="")])]
        body = made.encode(ModelRequest(history), "gemini-2")
        (call,) = made.decode(as_answer(provider, body, names.get_alias(name)), names).calls
        assert (call.name, get_arguments_object(call)) == (name, arguments)


def as_answer(provider, body, alias):
    """The turn of the model in a request, as the provider would have sent it."""
    if provider == "openai":
        item = next(i for i in body["input"] if i["type"] == "function_call")
        return {"status": "completed", "output": [{**item, "name": alias}]}
    if provider == "openai-chat":
        message = body["messages"][1]
        message["tool_calls"][0]["function"]["name"] = alias
        return {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    if provider == "anthropic":
        return {"content": [{**body["messages"][1]["content"][0], "name": alias}], "stop_reason": "tool_use"}
    part = body["contents"][1]["parts"][0]
    part["functionCall"]["name"] = alias
    return {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}


def test_nulls_for_what_was_left_out_give_the_call_again():
    for name, arguments, schema in truths():
        if not verdict(ToolDefinition(name, "d", schema), "openai").narrowed.strict:
            continue  # then nobody is told to send a null
        optional = [key for key in schema.get("properties", {}) if key not in schema.get("required", ())]
        filled = {**dict.fromkeys(optional), **arguments}
        # Some calls of the corpus say null themselves for what may be left out.
        assert NullSearch(schema).drop(filled, schema) == {k: v for k, v in arguments.items() if v is not None}


def reason(error):
    """What is wrong, without the list of what would be right."""
    return f"{error.instance!r} is not in the enum" if error.validator == "enum" else error.message


def test_every_call_fits_its_function_but_those_whose_mistake_is_known():
    """The calls of Java and JavaScript are texts of their languages, and are not judged."""
    wrong = []
    for question, name, arguments, schema in answers():
        if "java" not in question["kind"]:
            errors = jsonschema.Draft202012Validator(schema).iter_errors(arguments)
            wrong += [f"{question['id']} {name} {e.json_path}: {reason(e)}" for e in list(errors)[:1]]

    assert wrong == [line for line in KNOWN_BAD.read_text("utf-8").splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("provider", CHATS)
def test_streams_of_calls_cut_at_random_bytes_assemble_to_the_same_call(provider):
    chance, made = random.Random(3), codec(provider)  # noqa: S311 - a test that repeats
    for name, arguments, _ in truths():
        text = json.dumps(arguments, ensure_ascii=False)
        cut = sorted(chance.choices(range(len(text) + 1), k=3))
        pieces = [text[a:b] for a, b in zip([0, *cut], [*cut, len(text)], strict=True)]
        wire = sse(EVENTS[provider](pieces, arguments), named=provider in ("openai", "anthropic"))
        where = chance.randrange(len(wire))
        stream, reader = EventStream("x"), made.reader(made.no_names)
        for told in (told for part in (wire[:where], wire[where:]) for told in stream.feed(part)):
            list(reader.feed(told))
        assert get_arguments_object(reader.end().calls[0]) == arguments, name


def chat_events(pieces, arguments):
    del arguments
    yield {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]}}]}
    for piece in pieces:
        yield {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}}]}
    yield {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}


def responses_events(pieces, arguments):
    del arguments
    item = {"id": "fc", "type": "function_call", "call_id": "c", "name": "f", "arguments": "", "status": "completed"}
    whole = {**item, "arguments": "".join(pieces)}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    for piece in pieces:
        yield {"type": "response.function_call_arguments.delta", "item_id": "fc", "output_index": 0, "delta": piece}
    yield {"type": "response.output_item.done", "output_index": 0, "item": whole}
    yield {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [whole]}}


def anthropic_events(pieces, arguments):
    del arguments
    usage = {"input_tokens": 1, "output_tokens": 1}
    yield {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": usage}}
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    for piece in pieces:
        delta = {"type": "input_json_delta", "partial_json": piece}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


def gemini_events(pieces, arguments):
    del pieces
    part = {"functionCall": {"name": "f", "args": arguments}}
    yield {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}


EVENTS = {
    "openai": responses_events,
    "openai-chat": chat_events,
    "anthropic": anthropic_events,
    "gemini": gemini_events,
}
