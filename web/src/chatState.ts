/** Reduce the events of a run to what the page shows. Items that an event does not touch keep their identity. */
import type { ApprovalRequest, CallError, ChatCall, ChatEvent, Json, Part, Reply, Span } from "./types";

export interface Card {
  kind: "card";
  id: string;
  name: string;
  args: string;
  state: "writing" | "running" | "waiting" | "done" | "failed";
  progress: { done: number; total: number | null; message: string | null } | null;
  content: Part[];
  error: CallError | null;
  started: number | null;
  ended: number | null;
  request: ApprovalRequest | null;
  /** Run of a chat that was called as this tool, and its items. */
  run: string | null;
  items: Item[];
}

export type Item =
  | { kind: "user"; text: string }
  | { kind: "text" | "thought" | "note" | "error"; text: string }
  | { kind: "answer"; data: Json; isComplete: boolean }
  | Card;

export interface Run {
  items: Item[];
  id: string;
  state: "idle" | "running" | "waiting" | "done" | "failed";
  reply: Reply | null;
  steps: number;
  calls: number;
  spans: Span[];
  /** Time at which the turn of the model began that is not over. */
  turn: number | null;
}

export const EMPTY: Run = {
  items: [],
  id: "",
  state: "idle",
  reply: null,
  steps: 0,
  calls: 0,
  spans: [],
  turn: null,
};

export function ask(run: Run, prompt: string): Run {
  return { ...EMPTY, items: [...run.items, { kind: "user", text: prompt }], state: "running" };
}

function append(items: Item[], item: Item): Item[] {
  return [...items, item];
}

function addText(items: Item[], kind: "text" | "thought", text: string): Item[] {
  const last = items.at(-1);
  if (last?.kind === kind) return [...items.slice(0, -1), { ...last, text: last.text + text }];
  return append(items, { kind, text });
}

function argumentsText(call: ChatCall): string {
  return typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.arguments ?? {});
}

function newCard(id: string, name: string, args = ""): Card {
  return {
    kind: "card",
    id,
    name,
    args,
    state: "writing",
    progress: null,
    content: [],
    error: null,
    started: null,
    ended: null,
    request: null,
    run: null,
    items: [],
  };
}

/** Change the last card that matches, or return null if there is none. */
function changeCard(items: Item[], matches: (card: Card) => boolean, change: (card: Card) => Card): Item[] | null {
  for (let index = items.length - 1; index >= 0; index--) {
    const item = items[index];
    if (item?.kind === "card" && matches(item)) {
      const copy = [...items];
      copy[index] = change(item);
      return copy;
    }
  }
  return null;
}

function withCard(items: Item[], call: ChatCall, change: (card: Card) => Card): Item[] {
  const found = changeCard(
    items,
    (card) => card.id === call.id && card.state !== "done",
    (card) => change({ ...card, args: argumentsText(call) }),
  );
  return found ?? append(items, change(newCard(call.id, call.name, argumentsText(call))));
}

/** Set the typed answer of the last run. The model writes it as JSON text, which the data takes the place of. */
function setAnswer(items: Item[], answer: Item): Item[] {
  const start = items.findLastIndex((item) => item.kind === "user") + 1;
  const others = items.slice(start).filter((item) => item.kind !== "answer" && !(item.kind === "text" && /^\s*[[{]/.test(item.text)));
  return [...items.slice(0, start), ...others, answer];
}

function reduceItems(items: Item[], event: ChatEvent, now: number): Item[] {
  switch (event.type) {
    case "TextDelta":
      return addText(items, "text", event.text);
    case "ThoughtDelta":
      return addText(items, "thought", event.text);
    case "CallOpened":
      return append(items, newCard(event.id, event.name));
    case "ArgumentsDelta":
      return changeCard(items, (card) => card.id === event.id, (card) => ({ ...card, args: card.args + event.text })) ?? items;
    case "CallClosed":
      return withCard(items, event.call, (card) => card);
    case "CallStarted":
      return withCard(items, event.call, (card) => ({ ...card, state: "running", started: now, request: null }));
    case "CallProgress": {
      const { call_id, ...progress } = event.progress;
      return changeCard(items, (card) => card.id === call_id, (card) => ({ ...card, progress })) ?? items;
    }
    case "CallFinished": {
      const error = event.result.error ?? null;
      const state = error?.code === "approval_required" ? "waiting" : error ? "failed" : "done";
      return withCard(items, event.call, (card) => ({
        ...card,
        state,
        error: state === "failed" ? error : null,
        content: error ? [] : event.result.content,
        started: card.started ?? now,
        ended: now,
      }));
    }
    case "AnswerProgress":
      return setAnswer(items, { kind: "answer", data: event.data, isComplete: false });
    case "Compacted":
      return append(items, { kind: "note", text: `A summary replaced ${event.messages} older messages.` });
    case "Delegated":
      return delegate(items, event.path, event.run, event.event, now);
    default:
      return items;
  }
}

/** Put an event of a chat that was called as a tool under the card of its call. */
function delegate(items: Item[], path: string[], run: string, event: ChatEvent, now: number): Item[] {
  const [name, ...rest] = path;
  const isLast = rest.length === 0;
  const matches = (card: Card) =>
    card.name === name && (isLast ? card.run === run || card.run === null : card.state === "running");
  const known = isLast ? (card: Card) => card.name === name && card.run === run : matches;
  const change = (card: Card): Card => ({
    ...card,
    run: isLast ? run : card.run,
    items: isLast ? reduceItems(card.items, event, now) : delegate(card.items, rest, run, event, now),
  });
  return changeCard(items, known, change) ?? changeCard(items, matches, change) ?? items;
}

/** Give the cards that wait their requests. */
function addRequests(items: Item[], pending: ApprovalRequest[]): Item[] {
  if (!pending.length) return items;
  return items.map((item) => {
    if (item.kind !== "card") return item;
    const request = pending.find((each) => each.call_id === item.id && (each.tool === item.name || !item.items.length));
    const inner = addRequests(item.items, pending);
    if (!request && inner === item.items) return item;
    return { ...item, items: inner, ...(request ? { request, state: "waiting" as const } : {}) };
  });
}

function addSpans(run: Run, event: ChatEvent, now: number, depth = 0): Run {
  if (event.type === "Delegated") return addSpans(run, event.event, now, depth + event.path.length);
  if (event.type === "CallStarted") {
    const span: Span = { name: event.call.name, depth: depth + 1, start: now, end: now, note: event.call.id, failed: false };
    return { ...closeTurn(run, now), spans: [...closeTurn(run, now).spans, span] };
  }
  if (event.type === "CallFinished") {
    const index = run.spans.findLastIndex((span) => span.note === event.call.id && span.name === event.call.name);
    const span = run.spans[index];
    if (!span) return run;
    const spans = [...run.spans];
    const code = event.result.error?.code;
    spans[index] = { ...span, end: now, failed: code !== undefined && code !== "approval_required" };
    return { ...run, spans };
  }
  if (event.type === "StepFinished" && depth === 0) return { ...closeTurn(run, now), turn: now };
  return run;
}

function closeTurn(run: Run, now: number): Run {
  if (run.turn === null) return run;
  const span: Span = { name: `turn ${run.steps + 1}`, depth: 0, start: run.turn, end: now, note: "", failed: false };
  return { ...run, turn: null, spans: [...run.spans, span] };
}

/** Return the run after an event, received at a time in milliseconds. */
export function reduce(run: Run, event: ChatEvent, now: number): Run {
  if (event.type === "Started") return { ...run, id: event.run, state: "running", turn: now };
  if (event.type === "Failed") {
    const state = event.error.code === "cancelled" ? "done" : "failed";
    const kind = state === "done" ? "note" : "error";
    return { ...run, state, turn: null, items: append(run.items, { kind, text: event.error.message }) };
  }
  if (event.type === "Done") {
    const { reply } = event;
    let items = addRequests(run.items, reply.pending);
    if (reply.output !== undefined) items = setAnswer(items, { kind: "answer", data: reply.output, isComplete: true });
    else if (reply.text && reply.finish === "direct") items = append(items, { kind: "text", text: reply.text });
    if (reply.problem) items = append(items, { kind: "note", text: reply.problem });
    return { ...run, items, reply, turn: null, state: reply.pending.length ? "waiting" : "done" };
  }
  const timed = addSpans(run, event, now);
  return {
    ...timed,
    items: reduceItems(timed.items, event, now),
    steps: timed.steps + (event.type === "StepFinished" ? 1 : 0),
    calls: timed.calls + (event.type === "CallFinished" ? 1 : 0),
  };
}

const CARD_STATES: Card["state"][] = ["writing", "running", "waiting", "done", "failed"];
const TEXT_KINDS = ["user", "text", "thought", "note", "error"];
const UNANSWERED = "The chat was saved before this call was answered.";

/** Return the items of a saved chat. Its file may come from anyone: other data is left out, and nothing in it waits for an answer. */
export function readItems(data: unknown): Item[] {
  return (Array.isArray(data) ? data : []).flatMap((each: unknown): Item[] => {
    const item = readObject(each);
    if (TEXT_KINDS.includes(item.kind as string)) return [{ kind: item.kind as "note", text: readText(item.text) }];
    if (item.kind === "answer") return [{ kind: "answer", data: (item.data ?? null) as Json, isComplete: true }];
    return item.kind === "card" ? [readCard(item)] : [];
  });
}

function readCard(item: Record<string, unknown>): Card {
  const known = CARD_STATES.find((state) => state === item.state) ?? "failed";
  const isOpen = known === "waiting" || known === "running" || known === "writing";
  const error = readObject(item.error);
  const readTime = (value: unknown) => (typeof value === "number" ? value : null);
  return {
    ...newCard(readText(item.id), readText(item.name), readText(item.args)),
    state: isOpen ? "failed" : known,
    content: (Array.isArray(item.content) ? item.content : []).flatMap(readPart),
    error: isOpen ? { code: "not_finished", message: UNANSWERED } : item.error ? { code: readText(error.code), message: readText(error.message) } : null,
    started: readTime(item.started),
    ended: readTime(item.ended),
    items: readItems(item.items),
  };
}

function readPart(data: unknown): Part[] {
  const texts = Object.entries(readObject(data)).filter(([, value]) => typeof value === "string");
  const part = Object.fromEntries(texts) as Record<string, string>;
  const needed: Record<string, string[]> = { text: ["text"], image: ["data", "mime_type"], audio: ["data", "mime_type"], resource_link: ["uri"], resource: ["uri"] };
  return needed[part.type ?? ""]?.every((key) => part[key] !== undefined) ? [part as unknown as Part] : [];
}

function readObject(data: unknown): Record<string, unknown> {
  return typeof data === "object" && data !== null ? (data as Record<string, unknown>) : {};
}

function readText(data: unknown): string {
  return typeof data === "string" ? data : "";
}

/** Return the requests of a run that have no answer. */
export function pendingRequests(items: Item[]): ApprovalRequest[] {
  return items.flatMap((item) =>
    item.kind === "card" ? [...(item.request && item.state === "waiting" ? [item.request] : []), ...pendingRequests(item.items)] : [],
  );
}
