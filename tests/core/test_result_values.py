"""A `ToolResult` that an application or a hook makes itself."""

import copy
import json
import pickle
from typing import Any

import pytest
from pydantic import BaseModel

from toolmason import Message, Text, Toolbox, ToolCall, ToolResult, tool
from toolmason._core.values.results import replace_result
from toolmason.errors import ToolTimeout


@pytest.mark.parametrize(
    ("value", "text"),
    [(42, "42"), ("words", "words"), (None, "null"), ([1, 2], "[1,2]"), ({"a": 1}, '{"a":1}')],
    ids=repr,
)
def test_a_result_with_a_value_has_its_text_and_content(value: Any, text: str):
    """07-redesign.md: `ToolResult(id, name, value=42).text` recursed."""
    result = ToolResult("1", "work", value=value)

    assert (result.text, result.content, result.value) == (text, (Text(text),), value)
    assert text in repr(result)
    assert result == ToolResult("1", "work", text=text)


def test_a_value_without_a_json_form_has_a_text():
    assert "object" in ToolResult("1", "work", value=object()).text


def test_a_result_with_content_has_the_text_of_its_parts():
    result = ToolResult("1", "work", content=[Text("one"), Text("two")])

    assert (result.text, result.content) == ("one\ntwo", (Text("one"), Text("two")))


def test_a_result_with_an_error_has_its_text():
    result = ToolResult("1", "work", error=ToolTimeout("work", 1.0))

    assert '"code":"timeout"' in result.text
    assert not result.ok


@pytest.mark.parametrize("field", ["txt", "contents", "is_error", "structured_content"])
def test_a_misspelt_field_is_refused(field: str):
    fields: Any = {field: "x"}

    with pytest.raises(TypeError, match=field):
        ToolResult("1", "work", **fields)


async def test_a_hook_may_answer_with_a_value_alone():
    @tool
    async def work() -> str:
        return "ran"

    async def answer(call: Any, following: Any) -> ToolResult:
        return ToolResult(call.id, call.name, value=42)

    box = Toolbox(work)
    box.use(answer)

    assert (await box.call("work")).text == "42"


async def test_a_call_by_name_has_one_id_in_every_copy_of_its_result():
    @tool
    async def double(n: int) -> int:
        return 2 * n

    result = await Toolbox(double).call("double", '{"n": 2}')

    copies = [copy.copy(result), pickle.loads(pickle.dumps(result)), replace_result(result, text="5")]
    assert {item.call_id for item in copies} == {result.call_id}


async def test_an_integer_with_more_digits_than_python_writes_has_its_text():
    @tool
    async def grow() -> int:
        return 10**5000

    result = await Toolbox(grow).call("grow")

    assert (result.ok, len(result.text)) == (True, 5001)


class Long(BaseModel):
    n: int


@pytest.mark.parametrize("returns", [int, dict[str, int], Long], ids=["number", "mapping", "object"])
async def test_the_data_of_an_integer_with_too_many_digits_can_be_written(returns):
    def grow():
        return {int: 10**5000, Long: Long(n=10**5000)}.get(returns, {"n": 10**5000})

    grow.__annotations__["return"] = returns
    result = await Toolbox(grow).call("grow")

    [restored] = Message.from_dict(json.loads(json.dumps(Message("tool", results=[result]).to_dict()))).results
    assert restored.structured == {"result" if returns is int else "n": "1" + "0" * 5000}
    assert (restored.text, result.value) == (result.text, grow())
    assert replace_result(await Toolbox(grow).call("grow"), text="five").structured == (
        {"result": grow()} if returns is int else grow()
    )


async def test_arguments_with_an_integer_of_too_many_digits_can_be_written():
    call = ToolCall("c", "f", {"a": [10**5000, -(10**5000)], "b": 1.5})

    [restored] = Message.from_dict(json.loads(json.dumps(Message("assistant", "", [call]).to_dict()))).calls
    assert restored.raw == {"a": ["1" + "0" * 5000, "-1" + "0" * 5000], "b": 1.5}
