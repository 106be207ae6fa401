"""Checked by mypy and pyright, never run: the answer of a chat has the type that `output=` names.

A line with ignores must stay an error in both checkers: an ignore that hides nothing fails the check.
"""

from dataclasses import dataclass
from typing import Any, Literal, assert_type

from toolmason import Chat
from toolmason.chat import Answer, Reply


@dataclass
class Invoice:
    number: str
    total: float


async def a_chat_has_the_type_of_its_answers() -> None:
    chat = Chat("offline", output=Invoice)

    reply = await chat.send("x", conversation="c")

    assert_type(chat, Chat[Invoice])
    assert_type(reply, Reply[Invoice])
    assert_type(reply.output, Invoice)
    assert_type(reply.output.total, float)
    assert_type(reply.answer, Answer[Invoice] | None)
    assert_type(await chat.resume(reply, limits=None), Reply[Invoice])
    assert_type(chat.send_sync("x"), Reply[Invoice])
    reply.output.price  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    await chat.send("x", conversatoin="c")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


async def a_request_may_have_another() -> None:
    chat = Chat("offline", output=Invoice)

    assert_type((await chat.send("x", output=int)).output, int)
    assert_type((await chat.send("x", output=list[str])).output, list[str])
    assert_type((await chat.send("x", output=Invoice | None)).output, Invoice | None)
    assert_type((await chat.send("x", output=Literal["a", "b"])).output, Literal["a", "b"])
    assert_type((await chat.resume({}, output=int)).output, int)
    assert_type(chat.send_sync("x", output=int).output, int)


async def unions_and_other_forms_have_their_types() -> None:
    assert_type(Chat("offline", output=Invoice | int), Chat[Invoice | int])
    assert_type(Chat("offline", output=Literal["a"]), Chat[Literal["a"]])
    assert_type(Chat("offline", output=dict[str, Any]), Chat[dict[str, Any]])


async def a_chat_without_a_type_has_none() -> None:
    chat = Chat("offline")

    assert_type(chat, Chat[None])
    assert_type((await chat.send("x")).output, None)
    assert_type((await chat.send("x", output=Invoice)).output, Invoice)


def a_check_keeps_its_type(chat: Chat[Invoice]) -> None:
    @chat.check
    def has_total(invoice: Invoice) -> bool:
        return invoice.total > 0

    assert_type(has_total(Invoice("A", 1.0)), bool)
