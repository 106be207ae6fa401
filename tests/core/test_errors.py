"""What a failure is called, what the model is shown of it, and that errors travel."""

import asyncio
import copy
import json
import logging
import pickle

import pytest

from toolmason import Abort, Toolbox, ToolCall, ToolError, ToolResult, errors, tool
from toolmason.errors import (
    ArgumentProblem,
    ConfigError,
    DefinitionError,
    DuplicateTool,
    ExecutionError,
    InvalidArguments,
    ResultError,
    ToolCallError,
    ToolCancelled,
    ToolmasonError,
    ToolTimeout,
    UnknownTool,
    UnsupportedType,
)


@tool
async def leak() -> None:
    raise RuntimeError("the password is hunter2")


@tool
async def told() -> None:
    raise ToolError("No order 12. Try 13.", retryable=True, data={"secret": "hunter2"})


@tool
async def unsendable() -> object:
    return {"secret hunter2": float("nan")}


@tool
async def double(n: int) -> int:
    return n * 2


BOX = (leak, told, unsendable, double)


def form_of(result: ToolResult) -> dict:
    return json.loads(result.text)["error"]


# --- the form that the model reads -------------------------------------------------------------


@pytest.mark.row("L4-18")
async def test_the_form_for_the_model_is_json_with_code_message_tool_and_whether_a_retry_helps():
    result = await Toolbox(leak).call("leak")

    assert json.loads(result.text) == {
        "error": {
            "code": "execution_error",
            "message": "leak failed: RuntimeError: the password is hunter2",
            "tool": "leak",
            "retryable": False,
        }
    }


async def test_the_text_of_a_tool_error_goes_to_the_model_as_it_is_and_its_data_stays():
    result = await Toolbox(told).call("told")

    assert form_of(result) == {
        "code": "tool_error",
        "message": "No order 12. Try 13.",
        "tool": "told",
        "retryable": True,
    }
    assert result.error.data == {"secret": "hunter2"}
    assert "hunter2" not in result.text


async def test_the_form_of_bad_arguments_names_each_parameter():
    result = await Toolbox(double).call("double", {"n": "x"})

    [problem] = form_of(result)["parameters"]
    assert problem["path"] == "$.n"
    assert problem["expected"] == "integer"
    assert "x" in problem["got"]


@pytest.mark.row("L4-14")
async def test_the_cause_of_a_failure_is_kept_for_the_application():
    result = await Toolbox(leak).call("leak")

    assert isinstance(result.error, ExecutionError)
    assert isinstance(result.error.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [(ConnectionError("x"), True), (TimeoutError("x"), True), (ValueError("x"), False)],
    ids=["connection", "timeout", "value"],
)
async def test_a_failure_that_can_pass_says_so(error, retryable):
    @tool
    async def fail() -> None:
        raise error

    assert form_of(await Toolbox(fail).call("fail"))["retryable"] is retryable


async def test_one_error_object_raised_by_two_tools_names_each_in_its_turn():
    shared = ToolError("closed")

    @tool
    async def first() -> None:
        raise shared

    @tool
    async def second() -> None:
        raise shared

    results = await Toolbox(first, second).call_all([("first", {}), ("second", {})])

    assert [form_of(result)["tool"] for result in results] == ["first", "second"]


# --- on_error ----------------------------------------------------------------------------------


async def test_redaction_hides_the_exceptions_text_from_the_model_and_puts_it_in_the_log_under_an_id(caplog):
    with caplog.at_level(logging.INFO, logger="toolmason"):
        result = await Toolbox(leak, on_error="redact").call("leak")

    form = form_of(result)
    assert "hunter2" not in result.text
    assert "RuntimeError" not in result.text
    assert (form["code"], form["tool"], form["retryable"]) == ("execution_error", "leak", False)
    assert form["id"] in form["message"]
    assert form["id"] in caplog.text
    assert "hunter2" in caplog.text


async def test_each_redacted_failure_has_an_id_of_its_own():
    box = Toolbox(leak, on_error="redact")

    ids = {form_of(await box.call("leak"))["id"] for _ in range(10)}

    assert len(ids) == 10


async def test_redaction_hides_what_a_result_held():
    result = await Toolbox(unsendable, on_error="redact").call("unsendable")

    assert isinstance(result.error, ResultError)
    assert "hunter2" not in result.text


async def test_redaction_keeps_what_was_meant_for_the_model():
    box = Toolbox(*BOX, on_error="redact")

    results = await box.call_all([("told", {}), ("double", {"n": "x"}), ("doubel", {})])

    assert form_of(results[0])["message"] == "No order 12. Try 13."
    assert form_of(results[1])["parameters"][0]["path"] == "$.n"
    assert "'double'" in form_of(results[2])["message"]


async def test_redaction_hides_the_content_parts_too():
    result = await Toolbox(leak, on_error="redact").call("leak")

    assert "hunter2" not in repr(result.content)
    assert "hunter2" not in repr(result)


@pytest.mark.row("SP-52")
@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("leak", {}, ExecutionError),
        ("told", {}, ToolError),
        ("double", {"n": "x"}, InvalidArguments),
        ("doubel", {}, UnknownTool),
        ("unsendable", {}, ResultError),
    ],
    ids=["raised", "told", "arguments", "unknown", "result"],
)
async def test_raise_raises_the_typed_error(name, arguments, kind):
    box = Toolbox(*BOX, on_error="raise")

    with pytest.raises(kind) as caught:
        await box.call(name, arguments)

    assert caught.value.tool == name


async def test_raise_raises_out_of_a_batch_and_fills_its_results():
    results = []
    box = Toolbox(*BOX, on_error="raise")

    with pytest.raises(ToolError):
        await box.call_all([("double", {"n": 1}), ("told", {}), ("double", {"n": 2})], results=results)

    assert len(results) == 3
    assert results[0].value == 2


@pytest.mark.row("SP-51")
async def test_a_function_gives_the_words_for_a_failure():
    seen = []

    def words(error: ToolCallError) -> str:
        seen.append(error)
        return f"Sorry: {error.code}"

    result = await Toolbox(leak, on_error=words).call("leak")

    assert result.text == "Sorry: execution_error"
    assert result.content[0].text == "Sorry: execution_error"
    assert result.error is seen[0]
    assert not result.ok


async def test_a_function_may_turn_a_failure_into_a_result():
    def rescue(error: ToolCallError) -> ToolResult:
        return ToolResult("ignored", "ignored", value=7, text="seven")

    result = await Toolbox(leak, on_error=rescue).call(ToolCall("c-1", "leak"))

    assert (result.call_id, result.name) == ("c-1", "leak")
    assert (result.ok, result.value, result.text) == (True, 7, "seven")


@pytest.mark.row("SP-51")
async def test_a_function_may_raise():
    class Stop(Exception):
        pass

    def stop(error: ToolCallError) -> str:
        raise Stop

    with pytest.raises(Stop):
        await Toolbox(leak, on_error=stop).call("leak")


async def test_a_function_that_says_nothing_still_leaves_a_text_for_the_model():
    result = await Toolbox(leak, on_error=lambda error: "").call("leak")

    assert result.text


async def test_the_tools_word_on_errors_wins_over_the_toolboxes():
    @tool(on_error=lambda error: "mine")
    async def fail() -> None:
        raise ValueError

    box = Toolbox(fail, leak, on_error=lambda error: "ours")

    assert (await box.call("fail")).text == "mine"
    assert (await box.call("leak")).text == "ours"


@pytest.mark.parametrize("word", ["ignore", "Message", "", 5], ids=repr)
def test_a_word_that_on_error_does_not_know_is_refused_when_the_toolbox_is_made(word):
    with pytest.raises(DefinitionError, match="on_error"):
        Toolbox(leak, on_error=word)


def test_a_word_that_on_error_does_not_know_is_refused_when_the_tool_is_made():
    with pytest.raises(DefinitionError, match="on_error"):
        tool(on_error="ignore")(lambda: None)


# --- rethrow and Abort -------------------------------------------------------------------------


class PaymentDown(Exception):
    pass


@tool
async def pay() -> None:
    raise PaymentDown("later")


@tool
def pay_in_thread() -> None:
    raise PaymentDown("later")


@pytest.mark.parametrize("name", ["pay", "pay_in_thread"])
async def test_the_types_named_in_rethrow_pass_through_as_they_are(name):
    box = Toolbox(pay, pay_in_thread, leak, rethrow=(PaymentDown,))

    with pytest.raises(PaymentDown, match="later"):
        await box.call(name)
    assert (await box.call("leak")).error.code == "execution_error"


@pytest.mark.parametrize("runs_on", [None, "thread"], ids=["loop", "thread"])
async def test_a_type_that_is_no_exception_can_be_rethrown_too(runs_on):
    async def leave() -> None:
        raise SystemExit(3)

    def leave_in_thread() -> None:
        raise SystemExit(3)

    fn = leave if runs_on is None else leave_in_thread

    with pytest.raises(SystemExit):
        await Toolbox(fn, rethrow=(SystemExit,)).call(fn.__name__)


async def test_a_rethrown_type_stops_a_batch_and_fills_its_results():
    results = []

    with pytest.raises(PaymentDown):
        await Toolbox(double, pay, rethrow=(PaymentDown,)).call_all(
            [("double", {"n": 1}), ("pay", {})], results=results
        )

    assert [result.ok for result in results] == [True, False]


async def test_an_abort_passes_every_policy():
    @tool(on_error=lambda error: "swallowed")
    async def stop() -> None:
        raise Abort("enough")

    with pytest.raises(Abort):
        await Toolbox(stop, on_error="message").call("stop")


# --- the tree ----------------------------------------------------------------------------------


def test_everything_raised_on_purpose_has_one_root():
    kinds = [getattr(errors, name) for name in errors.__all__]
    exceptions = [kind for kind in kinds if issubclass(kind, BaseException) and not issubclass(kind, Warning)]

    assert len(exceptions) > 10
    assert all(issubclass(kind, ToolmasonError) for kind in exceptions)


def test_what_a_result_carries_is_told_apart_from_what_stops_a_run():
    assert not issubclass(Abort, ToolCallError)
    assert not issubclass(DefinitionError, ToolCallError)
    assert issubclass(ToolError, ToolCallError)


@pytest.mark.row("L4-16")
def test_the_codes_differ():
    kinds = [UnknownTool, InvalidArguments, ToolError, ExecutionError, ToolTimeout, ToolCancelled, ResultError]

    assert len({kind.code for kind in kinds}) == len(kinds)


# --- errors travel -----------------------------------------------------------------------------


class Foreign(Exception):
    """An exception that pickle cannot rebuild: its constructor wants more than its args."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def sample_errors() -> list[ToolmasonError]:
    cause = ExecutionError("pay", ValueError("bad card"))
    return [
        ToolmasonError("root"),
        DefinitionError("no type"),
        DuplicateTool("f", "here", "there"),
        UnsupportedType("odd"),
        ConfigError("missing"),
        Abort("enough"),
        UnknownTool("serch", ["search", "find"]),
        InvalidArguments([ArgumentProblem("$.n", "not a number", "integer", "string 'x'")], tool="f", raw="{"),
        ToolError("no", retryable=True, data={"order": 12}),
        cause,
        ToolTimeout("slow", 1.5, limit="batch timeout", retryable=True),
        ToolCancelled("slow"),
        ResultError("f", "it contains itself."),
    ]


@pytest.mark.parametrize("error", sample_errors(), ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("travel", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy], ids=["pickle", "copy"])
def test_an_error_arrives_as_it_left(error, travel):
    arrived = travel(error)

    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert arrived.args == error.args
    assert vars(arrived) == vars(error)


@pytest.mark.parametrize(
    "error", [error for error in sample_errors() if isinstance(error, ToolCallError)], ids=lambda e: type(e).__name__
)
def test_an_error_that_travelled_gives_the_model_the_same_form(error):
    assert pickle.loads(pickle.dumps(error)).to_model() == error.to_model()


def test_the_cause_travels_with_its_error():
    arrived = pickle.loads(pickle.dumps(ExecutionError("pay", ValueError("bad card"))))

    assert isinstance(arrived.__cause__, ValueError)
    assert arrived.__cause__.args == ("bad card",)


def test_a_cause_that_cannot_travel_leaves_its_words():
    arrived = pickle.loads(pickle.dumps(ExecutionError("pay", Foreign(1, 2))))

    assert "Foreign" in str(arrived.__cause__)
    assert "1 and 2" in str(arrived.__cause__)


def test_data_that_cannot_travel_leaves_its_words():
    arrived = pickle.loads(pickle.dumps(ToolError("no", data=lambda: None)))

    assert "lambda" in arrived.data


def test_an_error_of_a_subclass_with_its_own_constructor_travels():
    arrived = pickle.loads(pickle.dumps(OutOfStock("TEA-01", 3)))

    assert type(arrived) is OutOfStock
    assert (arrived.sku, arrived.left, str(arrived)) == ("TEA-01", 3, "only 3 of TEA-01")


class OutOfStock(ToolError):
    def __init__(self, sku: str, left: int) -> None:
        super().__init__(f"only {left} of {sku}")
        self.sku, self.left = sku, left


async def test_a_failed_result_travels():
    result = await Toolbox(leak, on_error="redact").call("leak")

    arrived = pickle.loads(pickle.dumps(result))

    assert arrived == result
    assert arrived.text == result.text
    assert isinstance(arrived.error.__cause__, RuntimeError)


# --- messages ----------------------------------------------------------------------------------


def test_an_unknown_tool_offers_at_most_three_near_names():
    error = UnknownTool("get", ["get_a", "get_b", "get_c", "get_d", "other"])

    assert len(error.close) <= 3


def test_a_cut_off_text_is_told_apart_by_a_field():
    async def ask(text: str) -> InvalidArguments:
        return (await Toolbox(double).call("double", text)).error

    assert asyncio.run(ask('{"n": 1')).cut_off is True
    assert asyncio.run(ask('{"n": 1]')).cut_off is False
    assert asyncio.run(ask('{"n": "x"}')).cut_off is False


def test_a_reason_that_is_a_sentence_has_one_full_stop():
    assert str(errors.ApprovalDenied("pay", "The user said no.")) == (
        "pay was not allowed to run: The user said no. Do not try to work around this."
    )
