import { expect, test } from "vitest";
import { parseEvents } from "./api";

function streamOf(...parts: string[]): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream({
    start(controller) {
      for (const part of parts) controller.enqueue(encoder.encode(part));
      controller.close();
    },
  });
}

async function collect(...parts: string[]): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const event of parseEvents(streamOf(...parts))) found.push(event);
  return found;
}

test("events are parsed, and comments are left out", async () => {
  expect(await collect('id: r/1\ndata: {"a":1}\n\n: waiting\n\ndata: {"b":2}\n\n')).toEqual([{ a: 1 }, { b: 2 }]);
});

test("an event may be split anywhere", async () => {
  const text = 'id: r/1\ndata: {"a":"ä"}\n\ndata: {"b":2}\n\n';
  for (let at = 1; at < text.length; at++) expect(await collect(text.slice(0, at), text.slice(at))).toEqual([{ a: "ä" }, { b: 2 }]);
});

test("an event of megabytes in small parts is parsed in linear time", async () => {
  const text = `data: ${JSON.stringify({ text: "x".repeat(3_000_000) })}\n\n`;
  const parts = text.match(/.{1,4096}|\n+/gs) ?? [];
  const [event] = (await collect(...parts)) as { text: string }[];
  expect(event?.text.length).toBe(3_000_000);
});

test("an unfinished event at the end is left out", async () => {
  expect(await collect('data: {"a":1}\n\ndata: {"b"')).toEqual([{ a: 1 }]);
});
