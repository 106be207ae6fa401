import { expect, test } from "vitest";
import { EMPTY, ask, pendingRequests, readItems, reduce, type Card, type Run } from "./chatState";
import type { ChatEvent } from "./types";

const USAGE = { input_tokens: 3, output_tokens: 4 };
const REPLY = { text: "", finish: "stop", problem: "", run: "r1", usage: USAGE, pending: [] };

function play(events: ChatEvent[], run: Run = ask(EMPTY, "hi")): Run {
  return events.reduce((state, event, index) => reduce(state, event, index * 10), run);
}

const call = { id: "c1", name: "add", arguments: { a: 1 } };
const result = { call_id: "c1", name: "add", content: [{ type: "text" as const, text: "2" }] };

test("text is joined, and a call is one card from its start to its result", () => {
  const run = play([
    { type: "Started", run: "r1" },
    { type: "TextDelta", text: "Let me " },
    { type: "TextDelta", text: "see." },
    { type: "CallOpened", id: "c1", name: "add" },
    { type: "ArgumentsDelta", id: "c1", text: '{"a"' },
    { type: "CallClosed", call },
    { type: "CallStarted", call },
    { type: "CallProgress", progress: { call_id: "c1", done: 1, total: 2, message: null } },
    { type: "CallFinished", call, result },
    { type: "StepFinished", number: 1 },
    { type: "Done", reply: { ...REPLY, text: "2" } },
  ]);
  expect(run.items.map((item) => item.kind)).toEqual(["user", "text", "card"]);
  const card = run.items[2] as Card;
  expect(card).toMatchObject({ state: "done", args: '{"a":1}', started: 60, ended: 80 });
  expect(run).toMatchObject({ state: "done", steps: 1, calls: 1 });
});

test("items that an event does not touch keep their identity", () => {
  const before = play([{ type: "CallStarted", call }, { type: "CallFinished", call, result }]);
  const after = reduce(before, { type: "TextDelta", text: "x" }, 99);
  expect(after.items[0]).toBe(before.items[0]);
  expect(after.items[1]).toBe(before.items[1]);
});

test("a call of the same id in a later turn is another card", () => {
  const run = play([
    { type: "CallStarted", call },
    { type: "CallFinished", call, result },
    { type: "CallStarted", call },
  ]);
  expect(run.items.filter((item) => item.kind === "card")).toHaveLength(2);
});

test("the timeline has turns and calls", () => {
  const run = play([
    { type: "Started", run: "r1" },
    { type: "CallStarted", call },
    { type: "CallFinished", call, result },
    { type: "StepFinished", number: 1 },
    { type: "StepFinished", number: 2 },
    { type: "Done", reply: REPLY },
  ]);
  expect(run.spans.map((span) => [span.name, span.start, span.end])).toEqual([
    ["turn 1", 0, 10],
    ["add", 10, 20],
    ["turn 2", 30, 40],
  ]);
});

test("a waiting call gets its request, and is done after the answer", () => {
  const request = { id: "q1", call_id: "c1", tool: "add", arguments: { a: 1 }, preview: "Add", effects: [], reason: "" };
  const error = { code: "approval_required", message: "needs approval" };
  const waiting = play([
    { type: "CallFinished", call, result: { ...result, content: [], error } },
    { type: "Done", reply: { ...REPLY, finish: "pending", pending: [request] } },
  ]);
  expect(waiting.state).toBe("waiting");
  expect(pendingRequests(waiting.items)).toEqual([request]);
  const done = play([{ type: "CallStarted", call }, { type: "CallFinished", call, result }], waiting);
  expect(pendingRequests(done.items)).toEqual([]);
  expect(done.items.filter((item) => item.kind === "card")).toHaveLength(1);
});

test("events of a delegated chat are under the card of its call", () => {
  const outer = { id: "o1", name: "research", arguments: {} };
  const run = play([
    { type: "CallStarted", call: outer },
    { type: "Delegated", path: ["research"], run: "r2", event: { type: "TextDelta", text: "inside" } },
    { type: "Delegated", path: ["research"], run: "r2", event: { type: "CallStarted", call } },
    { type: "Delegated", path: ["research", "add"], run: "r3", event: { type: "TextDelta", text: "deeper" } },
  ]);
  const card = run.items[1] as Card;
  expect(card.run).toBe("r2");
  expect(card.items.map((item) => item.kind)).toEqual(["text", "card"]);
  expect((card.items[1] as Card).items).toEqual([{ kind: "text", text: "deeper" }]);
});

test("two calls of one delegated chat have their own items", () => {
  const events: ChatEvent[] = ["r2", "r3"].map((run) => ({ type: "Delegated", path: ["ask"], run, event: { type: "TextDelta", text: run } }));
  const run = play([
    { type: "CallStarted", call: { id: "1", name: "ask", arguments: {} } },
    { type: "CallStarted", call: { id: "2", name: "ask", arguments: {} } },
    ...events,
  ]);
  const texts = run.items.slice(1).map((item) => (item as Card).items);
  expect(texts).toEqual([[{ kind: "text", text: "r3" }], [{ kind: "text", text: "r2" }]]);
});

test("a typed answer is shown while it is written, then complete", () => {
  const run = play([
    { type: "TextDelta", text: '{"a": 1,' },
    { type: "AnswerProgress", data: { a: 1 } },
    { type: "TextDelta", text: '{"b": 2}' },
    { type: "AnswerProgress", data: { a: 1, b: 2 } },
    { type: "Done", reply: { ...REPLY, text: '{"a":1,"b":2}', output: { a: 1, b: 2 } } },
  ]);
  expect(run.items.slice(1)).toEqual([{ kind: "answer", data: { a: 1, b: 2 }, isComplete: true }]);
});

test("a saved chat is read without what is not an item, and nothing in it waits", () => {
  const items = readItems([null, { kind: "text", text: 1 }, { kind: "x" }, { kind: "card", state: "waiting", content: [{ type: "text", text: "a" }, { type: "image" }] }]);
  expect(items).toMatchObject([{ kind: "text", text: "" }, { kind: "card", state: "failed", request: null, content: [{ type: "text", text: "a" }] }]);
  expect(readItems("x")).toEqual([]);
});

test("a failure and a limit are said", () => {
  const failed = play([{ type: "Failed", error: { code: "x", message: "The model failed." } }]);
  expect(failed).toMatchObject({ state: "failed" });
  expect(failed.items.at(-1)).toEqual({ kind: "error", text: "The model failed." });
  const limited = play([{ type: "Done", reply: { ...REPLY, finish: "limit", problem: "The run reached its limits." } }]);
  expect(limited.items.at(-1)).toEqual({ kind: "note", text: "The run reached its limits." });
});
