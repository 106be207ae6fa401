"""Functions of an approval that fail leave a trace in the log and in the error."""

import logging

import pytest

from toolmason import Toolbox, tool
from toolmason.chat import Chat
from toolmason.models import ScriptedModel


def fails(*given):
    raise ValueError("the database is down")


async def fails_later(*given):
    raise ValueError("the database is down")


def make_pay(**options):
    @tool(**options)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    return pay


def read(caplog, level):
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.fixture(autouse=True)
def log_all(caplog):
    caplog.set_level(logging.DEBUG, "toolmason")


@pytest.mark.parametrize("approver", [fails, fails_later], ids=["sync", "async"])
async def test_an_approver_that_fails_is_logged_with_an_id_and_a_place(caplog, approver):
    result = await Toolbox(make_pay(), approve="all", approver=approver).call("pay", {"amount": 1})

    [warning], [message] = read(caplog, logging.WARNING), read(caplog, logging.INFO)
    assert warning.startswith("pay [")
    assert f": its approver failed, id {result.error.log_id}: ValueError at {__file__}:" in warning
    assert message.endswith(f"failure {result.error.log_id}: the database is down")
    assert "the approver failed: ValueError" in result.text
    assert isinstance(result.error.__cause__, ValueError)


async def test_an_approver_with_another_signature_is_logged(caplog):
    result = await Toolbox(make_pay(), approve="all", approver=lambda: True).call("pay", {"amount": 1})

    [warning], [message] = read(caplog, logging.WARNING), read(caplog, logging.INFO)
    assert ": its approver failed, id " in warning
    assert "takes 0 positional arguments but 1 was given" in message
    assert isinstance(result.error.__cause__, TypeError)


async def test_the_log_of_an_approver_hides_secret_arguments(caplog):
    @tool
    def log_in(password: str) -> str:
        """Log in."""
        return "in"

    def leaks(request):
        raise ValueError(f"cannot judge {request.arguments['password']}")

    await Toolbox(log_in, approve="all", approver=leaks).call("log_in", {"password": "hunter2-hunter2"})

    assert "its approver failed" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("options", "part"),
    [({"approval": fails}, "approval="), ({"approval": fails_later}, "approval="), ({"preview": fails}, "preview")],
    ids=["predicate", "async predicate", "preview"],
)
async def test_a_predicate_or_preview_that_fails_is_logged(caplog, options, part):
    await Toolbox(make_pay(**options), approve="all", approver=lambda request: True).call("pay", {"amount": 1})

    [warning], [message] = read(caplog, logging.WARNING), read(caplog, logging.INFO)
    assert f": its {part} failed, id " in warning
    assert f": ValueError at {__file__}:" in warning
    assert message.endswith(": the database is down")


async def test_the_approver_of_a_calling_chat_that_fails_denies_and_is_logged(caplog):
    inner = Chat(ScriptedModel([[("pay", {"amount": 1})], "done"]), Toolbox(make_pay(), approve="all"))
    box = Toolbox(inner.as_tool("clerk", "Clerk."), approver=fails)

    reply = await Chat(ScriptedModel([[("clerk", {"prompt": "pay"})], "end"]), box).send("go")

    assert reply.text == "end"
    assert any(": its approver failed, id " in line for line in read(caplog, logging.WARNING))
