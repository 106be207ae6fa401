"""Chats and journalled runs on the page."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from toolmason import Toolbox
from toolmason.chat import PRICES, Chat, Price, SqliteRuntime
from toolmason.chat.durable.effects import OutcomeSerializer, RunEffect
from toolmason.testing import ScriptedModel
from toolmason.ui.page import Page, PageOptions
from toolmason.ui.page_app import PageApp
from ui.sample_page import TOKEN, add, ask, delete, make_app

OFFLINE = b"model=offline"


def make_scripted(script, *, runtime=None, tools=(add, delete), **options):
    """Return the application of a page whose target is a chat with a script."""
    chat = Chat(ScriptedModel(script), Toolbox(*tools), runtime=runtime, **options)
    page = Page(chat.box, PageOptions("app.py:chat", {"target": "the chat"}, runtime=runtime, chat=chat))
    return PageApp(page, TOKEN)


async def test_a_chat_streams_the_events_of_the_library():
    answer = await ask(make_app(), "chat", {"prompt": "add a 2", "conversation": "c"}, query=OFFLINE)

    kinds = [event["type"] for event in answer.events]
    assert kinds[0] == "Started"
    assert kinds[-1] == "Done"
    assert "CallFinished" in kinds


async def test_a_model_that_the_page_does_not_offer_is_refused():
    """The page must not name what the server loads."""
    answer = await ask(make_app(), "chat", {"prompt": "hello"}, query=b"model=scripted:x.json")

    assert answer.status == 400
    assert "offers no model" in answer.json["error"]["message"]


async def test_a_conversation_is_saved_and_loaded():
    app = make_app()
    await ask(app, "chat", {"prompt": "add a 2", "conversation": "c"}, query=OFFLINE)

    saved = (await ask(app, "conversations/c", query=OFFLINE)).json["messages"]
    loaded = await ask(app, "conversations/d/load", {"messages": saved})

    assert [message["role"] for message in saved][:2] == ["user", "assistant"]
    assert loaded.json == {"messages": len(saved)}
    assert (await ask(app, "conversations/d", query=OFFLINE)).json["messages"] == saved


async def test_a_chat_of_the_target_answers_with_its_type():
    @dataclass
    class Offer:
        sku: str

    app = make_scripted(['{"sku": "TEA"}'], output=Offer)

    answer = await ask(app, "chat", {"prompt": "go"}, query=b"model=target")

    assert answer.events[-1]["reply"]["output"] == {"sku": "TEA"}


async def test_a_chat_waits_for_an_answer_of_the_page():
    app = make_scripted([[("delete", {"path": "x"})], "It is gone."])
    first = await ask(app, "chat", {"prompt": "delete x"}, query=b"model=target")
    reply = first.events[-1]["reply"]

    second = await ask(
        app, "chat", {"run": reply["run"], "answers": {reply["pending"][0]["id"]: True}}, query=b"model=target"
    )

    assert reply["pending"][0]["preview"] == "Delete x"
    assert second.events[-1]["reply"]["text"] == "It is gone."


async def test_a_reply_has_its_cost():
    app = make_scripted(["Hello."], price=Price(input=1, output=1))

    answer = await ask(app, "chat", {"prompt": "hi"}, query=b"model=target")

    assert answer.events[-1]["reply"]["cost"] == 0


@pytest.mark.parametrize(
    ("name", "price"),
    [("openai:gpt-5-2025-08-07", PRICES["openai:gpt-5"]), ("offline", Price(0, 0)), ("openai:gpt-9", None)],
    ids=["listed", "on this machine", "unknown"],
)
async def test_a_chat_has_the_price_of_its_model_if_it_is_known(name, price, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    page = Page(Toolbox(add), PageOptions("app.py:box", {name: "a model"}))

    assert PageApp(page, TOKEN).chats.get(name).chat.price == price


async def test_the_chat_of_the_target_keeps_its_own_price_or_gets_that_of_its_model():
    own, model = Price(input=7, output=7), ScriptedModel(["Hello."] * 2, name="openai:gpt-5")

    for price, expected in ((own, own), (None, PRICES["openai:gpt-5"])):
        chat = Chat(model, Toolbox(add), price=price)
        page = Page(chat.box, PageOptions("app.py:chat", {"target": "the chat"}, chat=chat))
        assert PageApp(page, TOKEN).chats.get("target").chat.price == expected


# --- runs --------------------------------------------------------------------------------------------


@pytest.fixture
def runtime(tmp_path: Path):
    opened = SqliteRuntime(tmp_path / "runs.db")
    yield opened
    opened.close()


async def test_without_a_journal_the_list_says_so():
    assert (await ask(make_app(), "runs")).json == {"journal": None, "runs": []}
    assert (await ask(make_app(), "runs/x")).status == 400


async def test_a_chat_with_a_journal_is_listed_with_its_steps(runtime):
    app = make_scripted([[("add", {"a": 2})], "It is 3."], runtime=runtime)
    await ask(app, "chat", {"prompt": "2 + 1?"}, query=b"model=target")

    [entry] = (await ask(app, "runs")).json["runs"]
    run = (await ask(app, f"runs/{entry['run']}")).json

    assert (entry["state"], entry["asked"], entry["text"]) == ("stop", "2 + 1?", "It is 3.")
    assert [span["depth"] for span in run["spans"]] == [0, 1, 1, 1]
    assert [effect["name"] for effect in run["effects"] if effect["kind"] == "tool"] == ["add"]


async def test_a_pending_run_is_resumed_and_approved_on_the_page(runtime):
    script = [[("delete", {"path": "x"})], "It is gone."]
    first = make_scripted(script, runtime=runtime)
    await ask(first, "chat", {"prompt": "delete x"}, query=b"model=target")
    [entry] = (await ask(first, "runs")).json["runs"]

    app = make_scripted(script[1:], runtime=runtime)  # as after a restart: the journal has the first turn
    shown = await ask(app, "resumed", {"resume": entry["run"]}, query=b"model=target")
    reply = shown.events[-1]["reply"]
    body = {"run": reply["run"], "answers": {reply["pending"][0]["id"]: True}}
    done = await ask(app, "resumed", body, query=b"model=target")

    assert entry["state"] == "pending"
    assert reply["pending"][0]["preview"] == "Delete x"
    assert done.events[-1]["reply"]["finish"] == "stop"
    assert (await ask(app, "runs")).json["runs"][0]["state"] == "stop"


async def test_a_browser_of_the_network_cannot_choose_the_run_of_a_chat(runtime):
    """`{"resume": …}` is for the endpoint of the page's runs; the protocol of `sse` does not know it."""
    app = make_scripted(["one", "two"], runtime=runtime)
    await ask(app, "chat", {"prompt": "hi"}, query=b"model=target")
    [entry] = (await ask(app, "runs")).json["runs"]

    answer = await ask(app, "chat", {"resume": entry["run"]}, query=b"model=target")

    assert answer.status == 400


async def test_an_unknown_run_is_not_found(runtime):
    app = make_scripted(["hi"], runtime=runtime)

    assert (await ask(app, "runs/none")).status == 404
    assert (await ask(app, "resumed", {"resume": "none"}, query=b"model=target")).status == 400


@pytest.mark.parametrize(("body", "state"), [({"done": 5}, "done"), ({}, "again")], ids=["it ran", "it did not run"])
async def test_an_interrupted_call_gets_its_outcome_on_the_page(runtime, body, state):
    async def crash():
        raise OSError

    async with runtime.execute("r1") as execution:
        await execution.begin(lambda: {"asked": [], "before": [], "system": []})
        effect = RunEffect("r1", "1.1", "tool", "pay", repeatable=False)
        with pytest.raises(OSError):  # noqa: PT011 - as if the process ended here
            await execution.perform(effect, crash, OutcomeSerializer(str, str))
    app = make_scripted(["hi"], runtime=runtime)
    before = (await ask(app, "runs/r1")).json

    answer = await ask(app, "runs/r1/reconcile", {"key": "1.1", **body})

    after = (await ask(app, "runs/r1")).json
    assert (before["state"], before["interrupted"]) == ("interrupted", ["1.1"])
    assert answer.status == 200
    assert (after["interrupted"], after["effects"][0]["state"]) == ([], state)
