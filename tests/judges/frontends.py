"""Have the front ends of others read our streams: `python tests/judges/frontends.py [RUNS]`.

Records runs of a chat (text, reasoning, calls, failures, approvals and their answers, errors) in the protocols AG-UI
and Vercel AI SDK, and lets their own packages from npm parse and apply each stream. The message that they build must
be that of the run: the text, the calls with their arguments and results, the pending approvals.
"""

import asyncio
import json
import logging
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from suite import NODE

from chat.asgi_client import Streamed, request
from toolmason import Toolbox, ToolCall, ToolContext, tool
from toolmason.chat import Chat, TextDelta, ThoughtDelta, sse
from toolmason.testing import ScriptedModel

PLACE = ROOT / ".judges" / "frontends"
PACKAGES = ("ai@7.0.169", "@ag-ui/client@1.0.0", "@ag-ui/core@1.0.0")
RUNS = 200
READER = """
import { readFileSync, writeFileSync } from "node:fs";
import { readUIMessageStream, parseJsonEventStream, uiMessageChunkSchema } from "ai";
import { HttpAgent } from "@ag-ui/client";

async function readVercel(run) {
  let message = run.before;
  for (const text of run.streams) {
    const response = new Response(text);
    const chunks = parseJsonEventStream({ stream: response.body, schema: uiMessageChunkSchema }).pipeThrough(
      new TransformStream({
        transform(chunk, controller) {
          if (!chunk.success) throw chunk.error;
          controller.enqueue(chunk.value);
        },
      }),
    );
    let failed;
    const stream = readUIMessageStream({ message, stream: chunks, onError: (error) => { failed = error; } });
    for await (const state of stream) message = structuredClone(state);
    if (failed && !run.fails) throw failed;
  }
  const parts = message?.parts ?? [];
  const tools = parts.filter((part) => part.type === "dynamic-tool");
  return {
    text: parts.filter((part) => part.type === "text").map((part) => part.text).join(""),
    calls: tools.map((part) => [part.toolCallId, part.toolName, part.input]),
    results: tools.filter((part) => part.state === "output-available").map((part) => part.toolCallId),
    errors: tools.filter((part) => part.state === "output-error").map((part) => part.toolCallId),
    pending: tools.filter((part) => part.state === "approval-requested").map((part) => part.approval.id),
  };
}

async function readAgUi(run) {
  const initialMessages = [{ id: "u", role: "user", content: "hi" }];
  const agent = new HttpAgent({ url: "http://localhost/", threadId: "t", initialMessages });
  let pending = [], failure = null;
  for (const [index, text] of run.streams.entries()) {
    agent.fetch = async () => new Response(text, { status: 200, headers: { "content-type": "text/event-stream" } });
    const payload = { approved: true };
    const answers = pending.map((interruptId) => ({ interruptId, status: "resolved", payload }));
    const resume = index ? answers : undefined;
    pending = [];
    await agent.runAgent({ runId: `r${index}`, resume }, {
      onRunFinishedEvent: ({ event }) => {
        if (event.outcome?.type === "interrupt") pending = event.outcome.interrupts.map((entry) => entry.id);
      },
      onRunErrorEvent: ({ event }) => { failure = event.message; },
    }).catch((error) => { if (!run.fails) throw error; });
  }
  if (failure && !run.fails) throw new Error(failure);
  const calls = agent.messages.flatMap((message) => message.toolCalls ?? []);
  const said = agent.messages.filter((message) => message.role === "assistant");
  return {
    text: said.map((message) => message.content ?? "").join(""),
    calls: calls.map((call) => [call.id, call.function.name, JSON.parse(call.function.arguments || "{}")]),
    results: agent.messages.filter((message) => message.role === "tool").map((message) => message.toolCallId),
    errors: [],
    pending,
  };
}

const answers = [];
for (const run of JSON.parse(readFileSync(process.argv[2], "utf-8"))) {
  try {
    answers.push(await (run.protocol === "vercel" ? readVercel : readAgUi)(run));
  } catch (error) {
    answers.push({ failure: String(error?.stack ?? error).slice(0, 600) });
  }
}
writeFileSync(process.argv[3], JSON.stringify(answers));
process.exit(0);
"""


@tool
async def add(a: int, b: int, ctx: ToolContext) -> int:
    """Add."""
    await ctx.progress(1, 2, "half")
    return a + b


@tool
async def fail(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


@tool(external=True)
async def pick(kind: str, most: int = 1) -> str:
    """Pick a file, in the browser."""


@tool(approval=True)
async def pay(amount: int) -> dict[str, Any]:
    """Pay."""
    return {"paid": amount}


def _ask_clerk(request: Any) -> Any:
    replies = sum(message.role == "assistant" for message in request.messages)
    return [[("add", {"a": 1, "b": 2}), ("pay", {"amount": 5})], "The clerk paid."][replies]


def make_box() -> Toolbox:
    """Return the tools; one is a chat, of which a call waits for approval."""
    clerk = Chat(ScriptedModel([_ask_clerk] * 50), [add, pay]).as_tool("clerk", "Ask the clerk.")
    return Toolbox(add, fail, pay, pick, clerk, approval_key="k" * 32)


class Thinking(ScriptedModel):
    """A model that streams reasoning first, and its text in odd pieces."""

    seed = 0

    async def stream(self, request: Any) -> Any:
        rng = random.Random(self.seed + len(self.requests))  # noqa: S311 - repeatable
        if rng.random() < 0.4:
            for part in ("Let me ", "think…", " ok."):
                yield ThoughtDelta(part)
        async for event in super().stream(request):
            if isinstance(event, TextDelta) and len(event.text) > 1 and rng.random() < 0.3:
                yield TextDelta(event.text[:1])
                yield TextDelta(event.text[1:])
            else:
                yield event


def make_script(rng: random.Random) -> tuple[list[Any], bool]:
    """Return the turns of a model, and whether the run fails."""
    turns: list[Any] = []
    for turn in range(rng.randrange(4)):
        calls = []
        for place in range(rng.randrange(1, 4)):
            call_id = rng.choice(["", "same", f"c{turn}-{place}"])
            name = rng.choice(["add", "add", "fail", "pay", "clerk", "nothing", "pick", "guess"])
            arguments = {"add": {"a": 1, "b": rng.randrange(9)}, "fail": {"reason": "no"}, "pay": {"amount": 5}}
            arguments |= {"pick": {"kind": "a"}, "guess": {"most": 2}, "clerk": {"prompt": "Pay."}}
            given = arguments.get(name, {"x": 'quote " and \\u2028'})
            calls.append(ToolCall(call_id, "pick" if name == "guess" else name, given))
        turns.append(calls)
    fails = rng.random() < 0.1
    return [*turns, *([] if fails else [rng.choice(["Done.", "Zwölf — 12 €\n\nnext", "a", ""])])], fails


async def record(protocol: str, seed: int) -> dict[str, Any]:
    """Return one run: its streams, and what a front end must make of them."""
    rng = random.Random(seed)  # noqa: S311 - repeatable
    script, fails = make_script(rng)
    model = Thinking(script)
    model.seed = seed
    app = sse(Chat(model, make_box()), protocol=protocol)  # type: ignore[arg-type]
    body = _make_body(protocol, [], [])
    streams = [await request(app, body)]
    events = await _own_events(script, seed)
    first = streams[0]
    pending = _find_pending(protocol, first)
    picked = events["open"]
    if picked and not pending and rng.random() < 0.7:
        streams.append(await request(app, _make_results(protocol, picked, first.events)))
    if pending and rng.random() < 0.7:
        streams.append(await request(app, _make_body(protocol, pending, first.events)))
    return {
        "protocol": protocol,
        "fails": fails,
        "streams": [stream.body.decode() for stream in streams],
        "expected": events,
        "answered": len(streams) > 1,
    }


async def _own_events(script: list[Any], seed: int) -> dict[str, Any]:
    """Return what the first stream of the run holds, from our own events."""
    model = Thinking(script)
    model.seed = seed
    app = sse(Chat(model, make_box()))
    events = (await request(app, {"prompt": "hi"})).events
    finished = [event for event in events if event["type"] == "CallFinished"]
    waiting = {"approval_required"}
    return {
        "text": "".join(event["text"] for event in events if event["type"] == "TextDelta"),
        "calls": [
            [event["call"]["id"], event["call"]["name"], event["call"]["arguments"]]
            for event in events
            if event["type"] == "CallStarted" and event["call"]["name"] != "pick"
        ],
        "open": events[-1].get("reply", {}).get("external", []),
        "results": [event["call"]["id"] for event in finished if "error" not in event["result"]],
        "failed": [
            event["call"]["id"]
            for event in finished
            if "error" in event["result"]
            and event["result"]["error"]["code"] not in waiting
            and event["call"]["name"] != "pick"
        ],
        "pending": sum(event["result"].get("error", {}).get("code") in waiting for event in finished),
    }


def _find_pending(protocol: str, stream: Streamed) -> list[str]:
    if protocol == "vercel":
        return [event["approvalId"] for event in stream.events if event["type"] == "tool-approval-request"]
    last = stream.events[-1]
    return [entry["id"] for entry in last.get("outcome", {}).get("interrupts", [])]


def _make_body(protocol: str, pending: list[str], events: list[Any]) -> dict[str, Any]:
    if protocol == "ag-ui":
        resume = [{"interruptId": name, "status": "resolved", "payload": {"approved": True}} for name in pending]
        messages = [{"id": "u", "role": "user", "content": "hi"}]
        return {"threadId": "t", "runId": "r", "messages": messages, "tools": [], "context": [], "resume": resume}
    user = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    asked = {event["approvalId"]: event["toolCallId"] for event in events if event["type"] == "tool-approval-request"}
    names = {event["toolCallId"]: event["toolName"] for event in events if event["type"] == "tool-input-start"}
    parts = [
        {"type": "dynamic-tool", "toolName": names[asked[name]], "toolCallId": asked[name],
         "state": "approval-responded", "input": {"amount": 5}, "approval": {"id": name, "approved": True}}
        for name in pending
    ]  # fmt: skip
    answered = [{"id": events[0]["messageId"], "role": "assistant", "parts": parts}] if parts else []
    return {"id": "t", "messages": [user, *answered]}


def _make_results(protocol: str, picked: list[Any], events: list[Any]) -> dict[str, Any]:
    """Return the body with the results of the calls that the front end ran."""
    body = _make_body(protocol, [], [])
    if protocol == "ag-ui":
        results = [{"id": call["id"], "role": "tool", "toolCallId": call["id"], "content": "ok"} for call in picked]
        return {**body, "messages": [*body["messages"], *results]}
    parts = [
        {"type": "dynamic-tool", "toolName": "pick", "toolCallId": call["id"], "state": "output-available",
         "input": call["arguments"], "output": "ok"}
        for call in picked
    ]  # fmt: skip
    return {
        **body,
        "messages": [*body["messages"], {"id": events[0]["messageId"], "role": "assistant", "parts": parts}],
    }


def compare(run: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return what a front end made differently of a run."""
    if "failure" in found:
        return [found["failure"]]
    expected, wrong = run["expected"], []
    if run["fails"]:
        return []  # what came before the error is shown or not, as the front end likes
    if not run["answered"] and found["text"] != expected["text"]:
        wrong.append(f"text {found['text']!r} instead of {expected['text']!r}")
    known = {call[0]: call for call in found["calls"]}
    for call_id, name, arguments in expected["calls"]:
        if known.get(call_id, [None, None, None])[1:] != [name, arguments]:
            wrong.append(f"call {call_id} {known.get(call_id)} instead of {[call_id, name, arguments]}")
    picks = {call_id: arguments for call_id, name, arguments in found["calls"] if name == "pick"}
    if not run["answered"] and picks != {call["id"]: call["arguments"] for call in expected["open"]}:
        wrong.append(f"to run: {picks} instead of {expected['open']}")
    results = {*found["results"], *found["errors"]}
    if missing := {*expected["results"], *expected["failed"]} - results:
        wrong.append(f"no results for {sorted(missing)}")
    if not run["answered"] and len(found["pending"]) != expected["pending"]:
        wrong.append(f"{len(found['pending'])} pending instead of {expected['pending']}")
    return wrong


def install() -> str:
    """Install the packages where they are not there; return the program that runs them."""
    if not (PLACE / "node_modules" / "@ag-ui" / "client").is_dir():
        PLACE.mkdir(parents=True, exist_ok=True)
        (PLACE / "package.json").write_text('{"name": "frontends", "private": true, "type": "module"}\n', "utf-8")
        npm = shutil.which("npm") or sys.exit("The front ends need npm: install Node and npm, then run this again.")
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", NODE, *PACKAGES]
        subprocess.run(command, cwd=PLACE, check=True)
    (PLACE / "reader.mjs").write_text(READER, "utf-8")
    return str(PLACE / "node_modules" / ".bin" / "node")


async def record_all(count: int) -> list[dict[str, Any]]:
    return [await record(protocol, seed) for seed in range(count) for protocol in ("ag-ui", "vercel")]


def main() -> int:
    """Record the runs, have them read, and compare."""
    count = int(sys.argv[1]) if sys.argv[1:] else RUNS
    logging.disable()  # of the calls that fail
    node = install()
    runs = asyncio.run(record_all(count))
    (PLACE / "runs.json").write_text(json.dumps(runs), "utf-8")
    command = [node, str(PLACE / "reader.mjs"), str(PLACE / "runs.json"), str(PLACE / "answers.json")]
    answer = subprocess.run(command, capture_output=True, check=False, text=True, timeout=300)
    if answer.returncode:
        print(answer.stderr[-2000:])
        return 1
    answers = json.loads((PLACE / "answers.json").read_text("utf-8"))
    failed = 0
    for number, (run, found) in enumerate(zip(runs, answers, strict=True)):
        if wrong := compare(run, found):
            failed += 1
            print(f"run {number // 2} over {run['protocol']}: {'; '.join(wrong)}"[:700])
    answered = sum(run["answered"] for run in runs)
    print(f"{len(runs)} streams of {count} runs, {answered} with answers to approvals, {failed} read differently")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
