"""A secret appears on no surface, wherever it is placed: no log at DEBUG, span, metric, journal or repr.

Each place has a secret of its own, so that a failure names the place. Tools fail with every secret in their messages.
"""

import json
import logging
from hashlib import sha256

import pytest
from pydantic import BaseModel, SecretStr

from mcp_server.sample_server import running
from models.server import answer, provider
from otel_checks import record_metrics, record_spans
from toolmason import Allow, Chat, McpServer, Retry, Toolbox, ToolContext, model, tool
from toolmason.chat import SqliteRuntime
from toolmason.errors import ModelError
from toolmason.mcp import token_is
from toolmason.observe import METRICS, format_tree, record, to_html

NAMES = (
    *("named_argument", "typed_argument", "nested_argument", "header", "environment", "key", "url_password"),
    *("url_query", "context", "typed_context", "server_env", "bearer", "exception", "plain_argument"),
)
PLACES = {name: f"{sha256(name.encode()).hexdigest()[:20]}-{name}" for name in NAMES}
PLACES["exception"] = "sk-9c56cc51b374c3ba189210d5b6d4bf57790d351c"
"""A secret in an exception that nothing else knows: its form says what it is."""
IN_CONVERSATION = ("named_argument", "typed_argument", "nested_argument", "plain_argument")
"""What a model sent. The journal has the conversation, so that a run can go on; its file is for its owner only."""


class Login(BaseModel):
    """A login."""

    user: str
    password: str


def raise_with_secrets(ctx: ToolContext) -> None:
    shown = [PLACES[name] for name in PLACES if name != "plain_argument"]
    raise RuntimeError(f"failed with {shown} and {dict(ctx)!r} and http://ada:{PLACES['url_password']}@host/")


@tool(retry=Retry(attempts=2, delay=0))
async def fail_on_loop(api_key: str, pin: SecretStr, login: Login, note: str, ctx: ToolContext) -> str:
    """Fail."""
    raise_with_secrets(ctx)
    return ""


@tool
def fail_in_thread(api_key: str, pin: SecretStr, login: Login, note: str, ctx: ToolContext) -> str:
    """Fail."""
    raise_with_secrets(ctx)
    return ""


@tool
async def succeed(api_key: str, pin: SecretStr, login: Login, note: str, ctx: ToolContext) -> str:
    """Succeed."""
    return "fine"


ARGUMENTS = {
    "api_key": PLACES["named_argument"],
    "pin": PLACES["typed_argument"],
    "login": {"user": "ada", "password": PLACES["nested_argument"]},
    "note": PLACES["plain_argument"],
}
CALLS = {
    "status": "completed",
    "output": [
        {
            "type": "function_call",
            "id": f"f{number}",
            "call_id": f"c{number}",
            "name": name,
            "arguments": json.dumps(ARGUMENTS),
        }
        for number, name in enumerate(("fail_on_loop", "fail_in_thread", "succeed", "far", "no_such_tool"))
    ],
}
ANSWER = {
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}],
}
REFUSAL = {"error": {"message": f"bad key {PLACES['key']} of {PLACES['url_password']}", "code": PLACES["key"]}}


class Surfaces:
    """Everything that was shown, by where."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def add(self, name: str, *shown: object) -> None:
        self.texts[name] = self.texts.get(name, "") + "\n".join(map(str, shown))

    def find(self, places: dict[str, str]) -> list[str]:
        """Return where a secret, or the beginning of one, is shown."""
        return [
            f"{place} in {surface}: …{text[max(0, text.index(secret[:14]) - 80) : text.index(secret[:14]) + 40]}"
            for surface, text in self.texts.items()
            for place, secret in places.items()
            if secret[:14] in text
        ]


@pytest.fixture
def log():
    """Everything that any logger writes at DEBUG, with the fields of the records."""
    lines = []

    class Handler(logging.Handler):
        def emit(self, record_):
            fields = {key: value for key, value in vars(record_).items() if "." in key}
            lines.append(f"{logging.Formatter().format(record_)} {fields}")

    handler, root = Handler(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield lines
    root.removeHandler(handler)
    root.setLevel(level)


async def run_everything(surfaces, journal, url, *, content):
    """Run a chat with every kind of tool, server and failure. Return its reply, and the texts that the model read."""

    @tool
    async def far(api_key: str, pin: SecretStr, login: Login, note: str, ctx: ToolContext) -> str:
        """Fail on a server, which has the arguments and not the context of the client."""
        raise RuntimeError(f"failed with {api_key} {pin.get_secret_value()} {login} {PLACES['bearer']}")

    context = {"token": PLACES["context"], "credit": SecretStr(PLACES["typed_context"])}
    gone = f"http://127.0.0.1:1/mcp?token={PLACES['url_query']}"  # a password in it is refused
    with running(Toolbox(far), auth=token_is(PLACES["bearer"])) as server:
        bearer = {"Authorization": f"Bearer {PLACES['bearer']}", "X-Api-Key": PLACES["header"]}
        box = Toolbox(
            fail_on_loop,
            fail_in_thread,
            succeed,
            McpServer.http("far", server.url, headers=bearer),
            McpServer.http("gone", gone, headers={"X-Api-Key": PLACES["header"]}),
            McpServer.stdio("broken", "false", [], env={"API_TOKEN": PLACES["server_env"]}),
            approve="all",
            approver=lambda _: Allow(),
            name="desk",
            config={"tools": {"include_content": content}},
        )
        url = url.replace("http://", f"http://ada:{PLACES['url_password']}@")
        made = model("openai:m", base_url=url, api_key=PLACES["key"])
        chat = Chat(made, box, context=context, runtime=journal)
        async with chat:
            reply = await chat.send("Go.", run="r")
            direct = await box.call("fail_on_loop", ARGUMENTS, context=context)
        try:
            await chat.send("And again.")
        except ModelError as error:
            surfaces.add("repr", repr(error), str(error), vars(error))
        await made.aclose()
    results = [*reply.results, direct]
    errors = [result.error for result in results if result.error is not None]
    assert len(errors) >= 4
    surfaces.add("repr", *map(repr, (box, chat, made, reply, journal, server, *box.tools, *results, *errors)))
    surfaces.add("repr", *[repr(ToolContext(**context)), reply.timeline()])
    return reply, [result.text for result in results]


@pytest.mark.parametrize("content", [False, True], ids=["without content", "with content"])
async def test_a_secret_is_on_no_surface(content, log, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_TOKEN", PLACES["environment"])
    spans, metrics = record_spans(monkeypatch), record_metrics(monkeypatch)
    surfaces, journal = Surfaces(), SqliteRuntime(tmp_path / "runs.db")

    with provider(answer(CALLS), answer(ANSWER), answer(REFUSAL, 401)) as known, record() as recorder:
        reply, texts = await run_everything(surfaces, journal, known.url, content=content)

    surfaces.add("log", *log)
    surfaces.add("spans", *[span.to_json() for span in spans.all])
    surfaces.add("metrics", *[point for name in METRICS for point in metrics(name)])
    surfaces.add("tree", format_tree(recorder.spans), to_html(recorder.spans))
    assert len(recorder.spans) > 20
    assert any("failure" in line for line in log)
    # With content, spans and the log show what is not a secret.
    assert surfaces.find({name: PLACES[name] for name in PLACES if name != "plain_argument" or not content}) == []
    journal.close()
    files = b"".join(path.read_bytes() for path in tmp_path.glob("runs.db*"))
    kept = {name: secret for name, secret in PLACES.items() if name not in IN_CONVERSATION}
    written = Surfaces()
    written.add("journal", files.decode("utf-8", "replace"))
    written.add("texts for the model", *texts)
    assert written.find(kept) == []
    assert reply.text == "Done."
