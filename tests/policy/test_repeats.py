"""A call that is made again and again: a note, then the answer from before, then an end (demand.md 7)."""

import tracemalloc
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from policy.samples import noting
from toolmason import Allow, Chat, Image, Tool, Toolbox, ToolContext, ToolError, ToolReturn
from toolmason.chat import SqliteRuntime
from toolmason.errors import LimitExceeded
from toolmason.testing import ScriptedModel


def giving(values, **options):
    """A tool that gives one value after the other, and the list of its runs."""
    runs = []

    async def poll(path: str = "a", depth: int = 0):
        runs.append(path)
        value = values[min(len(runs), len(values)) - 1]
        if isinstance(value, Exception):
            raise value
        return value

    return Tool.from_function(poll, **options), runs


async def made(box, count, arguments=None):
    return [await box.call("poll", arguments) for _ in range(count)]


async def test_the_second_time_is_noted_the_third_is_answered_from_before_then_it_ends():
    tool, runs = giving(["same"])

    first, second, third, *more = await made(Toolbox(tool).run(), 6)

    assert first.text == "same"
    assert second.text.startswith("same\n[This is the second time")
    assert third.text.startswith("same\n[This call was made before")
    assert all(isinstance(result.error, LimitExceeded) for result in more)
    assert "3 identical calls" in more[0].text
    assert len(runs) == 2


async def test_a_stored_answer_belongs_to_the_call_that_asks_and_keeps_its_value():
    tool, _ = giving([{"price": 4}])
    run = Toolbox(tool).run()

    first, _, third = await made(run, 3)

    assert third.call_id != first.call_id
    assert (third.ok, third.value, third.structured) == (True, {"price": 4}, first.structured)
    assert third.content[-1].text.startswith("[This call was made before")


async def test_outside_a_run_nothing_is_held_up():
    tool, runs = giving(["same"])

    results = await made(Toolbox(tool), 6)

    assert {result.text for result in results} == {"same"}
    assert len(runs) == 6


async def test_a_new_run_starts_over():
    tool, runs = giving(["same"])
    box = Toolbox(tool)

    await made(box.run(), 3)
    (fresh,) = await made(box.run(), 1)

    assert (fresh.text, len(runs)) == ("same", 3)


async def test_other_arguments_are_another_call():
    tool, runs = giving(["same"])
    run = Toolbox(tool).run()

    results = [await run.call("poll", {"path": str(number)}) for number in range(6)]

    assert {result.text for result in results} == {"same"}
    assert len(runs) == 6


async def test_another_tool_is_another_call():
    ran = []
    run = Toolbox(noting(ran, "first"), noting(ran, "second")).run()

    results = [await run.call(name, {"path": "a"}) for name in ("first", "second", "first", "second")]

    assert [result.ok for result in results] == [True] * 4
    assert len(ran) == 4


async def test_another_result_starts_the_count_again():
    tool, runs = giving(["wait", "done", "wait", "done", "wait"])

    results = await made(Toolbox(tool).run(), 5)

    assert [result.text for result in results] == ["wait", "done", "wait", "done", "wait"]
    assert len(runs) == 5


async def test_a_tool_that_polls_may_repeat_itself():
    tool, runs = giving(["same"], repeats="allow")

    results = await made(Toolbox(tool).run(), 6)

    assert {result.text for result in results} == {"same"}
    assert len(runs) == 6


@pytest.mark.parametrize(
    "again",
    [
        {"depth": 1, "path": "a"},
        '{"path": "a", "depth": 1}',
        '{ "depth":1,\n"path":"a"}',
        b'{"path": "a", "depth": 1}',
    ],
    ids=["other order", "JSON", "JSON, other order and spaces", "bytes"],
)
async def test_the_form_of_the_arguments_does_not_matter(again):
    tool, runs = giving(["same"])
    run = Toolbox(tool).run()

    await made(run, 2, {"path": "a", "depth": 1})
    third = await run.call("poll", again)

    assert third.text.startswith("same\n[This call was made before")
    assert len(runs) == 2


@pytest.mark.parametrize("empty", [None, "", "{}", {}, b"{}"], ids=repr)
async def test_no_arguments_are_no_arguments_in_any_form(empty):
    tool, runs = giving(["same"])
    run = Toolbox(tool).run()

    await made(run, 2, {})
    await run.call("poll", empty)

    assert len(runs) == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [(ValueError("broken"), "execution_error"), (ToolError("not there"), "tool_error")],
    ids=["raises", "ToolError"],
)
async def test_a_failure_that_repeats_itself_is_held_up_too(error, code):
    tool, runs = giving([error])

    first, second, third, fourth = await made(Toolbox(tool).run(), 4)

    assert [result.error.code for result in (first, second, third, fourth)] == [code, code, code, "limit_exceeded"]
    assert "second time" in second.text
    assert "made before" in third.text
    assert len(runs) == 2


async def test_views_of_a_run_share_what_it_has_seen():
    tool, runs = giving(["same"])
    run = Toolbox(tool).run()

    await made(run, 2)
    third = await run.select("poll").call("poll")

    assert "made before" in third.text
    assert len(runs) == 2


async def test_an_answer_from_before_is_not_counted_as_a_run_of_the_tool():
    tool, _ = giving(["same"], max_calls=3)
    run = Toolbox(tool).run()

    await made(run, 3, {"path": "a"})
    other = await run.call("poll", {"path": "b"})

    assert other.ok


async def test_a_batch_counts_each_of_its_calls():
    tool, runs = giving(["same"])
    run = Toolbox(tool).run()

    await run.call_all([("poll", None)] * 2)
    (third,) = await run.call_all([("poll", None)])

    assert "made before" in third.text
    assert len(runs) == 2


async def test_pictures_of_one_size_are_not_the_same_result():
    tool, runs = giving([Image(bytes([number]), "image/png") for number in range(6)])

    results = await made(Toolbox(tool).run(), 6)

    assert [result.content[0].data for result in results] == [bytes([number]) for number in range(6)]
    assert len(runs) == 6


async def test_what_a_tool_tells_the_application_does_not_make_results_the_same():
    tool, runs = giving([ToolReturn(str(number), meta={"sha256": "0"}) for number in range(4)])

    results = await made(Toolbox(tool).run(), 4)

    assert [result.text for result in results] == ["0", "1", "2", "3"]
    assert len(runs) == 4


async def test_huge_results_that_are_the_same_are_noticed_although_each_has_its_own_handle():
    tool, runs = giving(["x" * 10_000], max_result_bytes=1000)

    results = await made(Toolbox(tool).run(), 4)

    assert "made before" in results[2].text
    assert (results[3].ok, len(runs)) == (False, 2)


@pytest.mark.parametrize(
    ("name", "arguments", "hint"),
    [
        ("poll", {"depth": "deep"}, "Change $.depth."),
        ("poll", {"depth": "deep", "width": 1}, "Change $.depth, $.width."),
        ("poll", "{]", "Send one valid JSON object."),
        ("poll", '{"path": "a', "Send shorter arguments, as one complete JSON object."),
        ("pol", {}, "Call one of these instead: poll."),
        ("unheard_of", {"path": "a"}, "Call one of these instead: poll."),
    ],
    ids=["bad argument", "two bad arguments", "bad JSON", "truncated JSON", "misspelt name", "unknown name"],
)
async def test_a_call_that_never_runs_gets_its_error_then_a_hint_then_the_end(name, arguments, hint):
    """review/peers.md §3, bug 5: the loop that small models fall into most went on until the step limit."""
    tool, runs = giving(["same"], extra="forbid")
    run = Toolbox(tool).run()

    first, second, *others = [await run.call(name, arguments) for _ in range(5)]

    assert first.error.code == second.error.code != "limit_exceeded"
    assert "second time" not in first.text
    assert second.text.startswith(first.text[: first.text.index('","tool"')])
    assert f"second time that this call cannot run. {hint} If it is made a third time, the run ends." in second.text
    assert [(other.error.code, other.error.ends_run) for other in others] == [("limit_exceeded", True)] * 3
    assert runs == []


async def test_an_unknown_name_is_the_same_call_whatever_its_arguments():
    tool, _ = giving(["same"])
    run = Toolbox(tool).run()

    results = [await run.call("unheard_of", {"number": number}) for number in range(3)]

    assert results[2].error.ends_run


async def test_other_invalid_arguments_are_another_call():
    tool, _ = giving(["same"])
    run = Toolbox(tool).run()

    results = [await run.call("poll", {"depth": f"{number} feet"}) for number in range(5)]

    assert {result.error.code for result in results} == {"invalid_arguments"}
    assert not any("second time" in result.text for result in results)


@pytest.mark.parametrize(("first", "second"), [(-1, -2), (-1.0, -2.0), (0, 2**61 - 1), (-3, -3.0)])
async def test_invalid_numbers_with_one_hash_are_other_calls(first, second):
    def count(n: int = Field(gt=10**20)) -> None: ...

    run = Toolbox(count).run()

    results = [await run.call("count", {"n": n}) for n in (first, second, first)]

    assert [result.error.code for result in results] == ["invalid_arguments"] * 3
    assert ["second time" in result.text for result in results] == [False, False, True]


async def test_a_tool_that_polls_may_also_repeat_invalid_arguments():
    tool, _ = giving(["same"], repeats="allow")

    results = await made(Toolbox(tool).run(), 5, {"depth": "deep"})

    assert {result.error.code for result in results} == {"invalid_arguments"}


async def test_a_tool_that_is_disabled_is_an_unknown_name():
    tool, _ = giving(["same"], enabled=lambda ctx: False)

    *_, third = await made(Toolbox(tool).run(), 3)

    assert third.error.ends_run


async def test_a_resolver_that_fails_does_not_end_the_run():
    class Broken:
        def resolve(self, name):
            raise OSError("the registry is away")

    box = Toolbox(resolvers=[Broken()], resolution_fallback=True)

    *_, third = await made(box.run(), 3)

    assert isinstance(third.error, LimitExceeded)
    assert not third.error.ends_run
    assert "2 identical calls of a tool that is not available has been reached. Go on without it." in third.text


async def test_a_run_does_not_keep_the_names_and_arguments_that_it_rejects():
    """A model may send any number of unknown names of any size."""
    tool, _ = giving(["same"])
    run = Toolbox(tool).run()
    await run.call("warm_up")
    await run.call("poll", {"depth": "warm up"})

    tracemalloc.start()
    try:
        for number in range(3_000):
            await run.call(f"{number}{'x' * 20_000}")
            await run.call("poll", {"depth": f"{number}{'x' * 20_000}"})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 1_000_000


@pytest.mark.parametrize("call", [("unheard_of", {}), ("poll", {"depth": "deep"})], ids=["unknown", "invalid"])
async def test_a_chat_ends_a_model_that_repeats_a_call_that_never_runs(call):
    tool, _ = giving(["same"])
    model = ScriptedModel([[call]] * 4 + ["Done."])

    reply = await Chat(model, [tool]).send("Go.")

    assert (reply.finish, reply.limit) == ("limit", "limit of 2 identical invalid calls for this run")
    assert len(reply.results) == len(model.requests) == 3


async def test_a_tool_that_is_not_offered_is_an_unknown_name():
    tool, runs = giving(["same"])

    async def hide(turn, call_next):
        request = turn.request
        return await call_next(replace(turn, request=request.with_messages(request.messages, tools=())))

    reply = await Chat(ScriptedModel([[("poll", {})]] * 4), [tool], advisors=[hide]).send("Go.")

    assert (reply.limit, len(reply.results)) == ("limit of 2 identical invalid calls for this run", 3)
    assert runs == []


async def test_the_calls_of_one_turn_count_once():
    """The model has not read the error yet when it sends the second one."""
    tool, _ = giving(["same"])
    turns = [[("poll", {"depth": "deep"})] * 3, [("poll", {"depth": "deep"})] * 2, "Sorry."]

    reply = await Chat(ScriptedModel(turns), [tool]).send("Go.")

    assert reply.finish == "stop"
    assert ["second time" in result.text for result in reply.results] == [False] * 3 + [True] * 2


async def test_a_chat_that_another_one_calls_ends_and_its_caller_goes_on():
    tool, _ = giving(["same"])
    inner = Chat(ScriptedModel([[("unheard_of", {})]] * 4), [tool])
    model = ScriptedModel([[("research", {"prompt": "Go."})], "It did not work."])

    reply = await Chat(model, [inner.as_tool("research", "Research.")]).send("Go.")

    assert "research reached its limit of 2 identical invalid calls for this run." in reply.results[0].text
    assert (reply.finish, reply.text) == ("stop", "It did not work.")


@pytest.mark.parametrize("call", [("unheard_of", {}), ("poll", {"depth": "deep"})], ids=["unknown", "invalid"])
async def test_a_run_that_is_resumed_remembers_what_it_rejected(call):
    tool, _ = giving(["same"])
    pay = noting([], "pay", approval=True)
    model = ScriptedModel([[call], [call], [("pay", {"path": "a"})], [call], "Done."])
    chat = Chat(model, [tool, pay])
    waiting = await chat.send("Go.")

    decisions = [chat.box.approvals.decide(request, Allow()) for request in waiting.pending]
    reply = await chat.resume(waiting.save(), decisions)

    assert (reply.finish, reply.limit) == ("limit", "limit of 2 identical invalid calls for this run")


async def test_a_run_that_is_executed_again_ends_for_the_same_reason(tmp_path):
    tool, _ = giving(["same"])

    def make_chat(turns):
        return Chat(ScriptedModel(turns), [tool], runtime=SqliteRuntime(tmp_path / "runs.db"))

    first = await make_chat([[("unheard_of", {})]] * 3).send("Go.", run="a")
    again = await make_chat([]).send("Go.", run="a")

    assert (again.finish, again.limit) == (first.finish, first.limit) == ("limit", again.limit)
    assert again.limit == "limit of 2 identical invalid calls for this run"


@pytest.mark.parametrize("options", [{}, {"max_concurrency": 1}], ids=["short way", "long way"])
async def test_values_that_are_equal_but_of_other_types_are_other_calls(options):
    async def poll(value: Any) -> str:
        return "same"

    run = Toolbox(Tool.from_function(poll, **options)).run()

    results = [await run.call("poll", {"value": value}) for value in (1, True, 1.0, "1", None, 1)]

    assert [result.text.partition("\n")[2][:8] for result in results] == ["", "", "", "", "", "[This is"]


async def test_the_two_ways_of_a_call_know_each_others_calls():
    tool, runs = giving(["same"])
    run = Toolbox(tool).run()

    await run.call("poll", {"path": "b"})
    await run.call("poll", '{"path": "b"}', timeout=5)
    third = await run.call("poll", {"path": "b"}, retry=None)

    assert third.text.startswith("same\n[This call was made before")
    assert len(runs) == 2


@pytest.mark.parametrize("has_context", [False, True])
async def test_the_order_of_undeclared_arguments_does_not_matter(has_context):
    runs = []
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}

    async def handle(arguments, context):
        runs.append(arguments)
        return 1

    async def collect(ctx: ToolContext, **values: int) -> int:
        runs.append(values)
        return 1

    tool = Tool.from_function(collect, name="poll") if has_context else Tool.from_schema("poll", "", schema, handle)
    box = Toolbox(tool).run()
    results = [await box.call("poll", text) for text in ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"a": 1, "b": 2}')]

    assert len(runs) == 2
    assert "made before" in results[2].text


class Guest(BaseModel):
    name: str
    ages: list[int] = []
    id: str = Field(default_factory=lambda: uuid4().hex)


class Options(TypedDict, total=False):
    a: int
    b: int


class Room(BaseModel):
    a: int = 0
    b: int = 0
    beds: list[list[list[int]]] = []


def stay(
    guest: Guest,
    options: Options | None = None,
    tags: dict[str, list[int]] | None = None,
    room: Room | None = None,
) -> str:
    """Stay."""
    return "same"


ONCE = '{"guest": {"name": "a"}}'


@pytest.mark.parametrize(
    ("first", "second", "is_repeated"),
    [
        (ONCE, '{"guest":{"name":"\\u0061"}}', True),
        (ONCE, {"guest": {"name": "a"}}, True),
        ('{"guest": {"name": "a", "ages": [1, 2]}}', '{"guest": {"ages": [1, 2], "name": "a"}}', True),
        ('{"guest": {"name": "a", "ages": [1, 2]}}', '{"guest": {"ages": [2, 1], "name": "a"}}', False),
        (ONCE, '{"guest": {"name": "a", "ages": []}}', False),
        (ONCE, '{"guest": {"name": "a", "id": ""}}', False),
        (
            '{"guest": {"name": "a"}, "options": {"a": 1, "b": 2}}',
            '{"options": {"b": 2, "a": 1}, "guest": {"name": "a"}}',
            True,
        ),
        ('{"guest": {"name": "a"}, "options": {"a": 1}}', '{"guest": {"name": "a"}, "options": {"b": 1}}', False),
        (ONCE, '{"guest": {"name": "a"}, "options": {}}', False),
        (
            '{"guest": {"name": "a"}, "tags": {"x": [1], "y": []}}',
            '{"guest": {"name": "a"}, "tags": {"y": [], "x": [1]}}',
            True,
        ),
        (
            '{"guest": {"name": "a"}, "tags": {"x": [1], "y": []}}',
            '{"guest": {"name": "a"}, "tags": {"x": [], "y": [1]}}',
            False,
        ),
        ('{"guest": {"name": "a"}, "room": {"a": 1}}', '{"guest": {"name": "a"}, "room": {"b": 1}}', False),
        (
            '{"guest": {"name": "a"}, "room": {"beds": [[[]]]}}',
            '{"guest": {"name": "a"}, "room": {"beds": [[], []]}}',
            False,
        ),
        (f'{{"guest": {{"name": "{"x" * 999}"}}}}', f'{{ "guest": {{"name": "{"x" * 999}"}}}}', True),
        (f'{{"guest": {{"name": "{"x" * 999}"}}}}', f'{{"guest": {{"name": "{"x" * 998}y"}}}}', False),
        (
            f'{{"guest": {{"name": "a", "ages": {[1] * 99}}}}}',
            f'{{"guest": {{"ages": {[1] * 99}, "name": "a"}}}}',
            True,
        ),
        (
            f'{{"guest": {{"name": "a", "ages": {[1] * 99}}}}}',
            f'{{"guest": {{"name": "a", "ages": {[1] * 98}}}}}',
            False,
        ),
    ],
)
@pytest.mark.parametrize("options", [{}, {"max_concurrency": 1}], ids=["short way", "long way"])
async def test_nested_arguments_are_the_same_call_whatever_their_form(options, first, second, is_repeated):
    run = Toolbox(Tool.from_function(stay, **options)).run()

    results = [await run.call("stay", text) for text in (first, second)]

    assert all(result.ok for result in results)
    assert ("second time" in results[1].text) is is_repeated


async def test_nested_values_that_are_equal_but_of_other_types_are_other_calls():
    class Reading(BaseModel):
        value: bool | int | float | str

    async def poll(reading: Reading, readings: list[bool | int | float]) -> str:
        return "same"

    run = Toolbox(poll).run()
    values = ["1", "true", "1.0", '"1"', "1"]
    texts = [f'{{"reading": {{"value": {value}}}, "readings": [1]}}' for value in values]
    texts += [f'{{"reading": {{"value": "a"}}, "readings": [{value}]}}' for value in ("1", "true", "1.0", "1")]

    results = [await run.call("poll", text) for text in texts]

    assert ["second" in result.text for result in results] == [*[False] * 4, True, *[False] * 3, True]
