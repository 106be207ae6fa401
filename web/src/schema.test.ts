import { expect, test } from "vitest";
import { diffLines } from "./diff";
import { dropEmpty, isDrawable, isFile, parsePath, toFormErrors, toFormSchema } from "./schema";
import { filterTools } from "./tools";
import type { ToolSummary } from "./types";
import { validator } from "./validator";

test("a nullable field has no choice, and other unions name theirs", () => {
  const schema = toFormSchema({
    type: "object",
    properties: {
      day: { anyOf: [{ type: "string", format: "date" }, { type: "null" }], default: null },
      id: { anyOf: [{ type: "integer" }, { type: "string" }] },
    },
  });
  expect(schema.properties).toEqual({
    day: { type: ["string", "null"], format: "date", default: null, title: "day" },
    id: { anyOf: [{ type: "integer", title: "integer" }, { type: "string", title: "string" }], title: "id" },
  });
});

test("hidden characters of names and descriptions are shown", () => {
  const schema = toFormSchema({ properties: { "a\u202eb": { description: "x\u200by" } } });
  expect(schema.properties).toEqual({ "a\u202eb": { description: "x\\u200by", title: "a\\u202eb" } });
});

test("choices with hidden characters are shown with escapes, and sent as they are", () => {
  expect(toFormSchema({ enum: ["a", "b\u202e"] })).toEqual({
    oneOf: [
      { const: "a", title: "a" },
      { const: "b\u202e", title: "b\\u202e" },
    ],
  });
});

test("a property named like a keyword stays a property", () => {
  const schema = toFormSchema({ properties: { default: { type: "string" }, properties: { type: "integer" } } });
  expect(schema.properties).toEqual({
    default: { type: "string", title: "default" },
    properties: { type: "integer", title: "properties" },
  });
});

test("a choice by reference has the name of its type", () => {
  const schema = toFormSchema({ properties: { pay: { anyOf: [{ $ref: "#/$defs/Card" }, { $ref: "#/$defs/Invoice" }] } } });
  expect(schema.properties).toEqual({
    pay: { anyOf: [{ $ref: "#/$defs/Card", title: "Card" }, { $ref: "#/$defs/Invoice", title: "Invoice" }], title: "pay" },
  });
});

test("texts in base64 are files", () => {
  expect(toFormSchema({ type: "string", format: "base64" })).toEqual({ type: "string", format: "data-url", contentEncoding: "base64" });
  expect(toFormSchema({ format: "base64url" })).toEqual({ format: "data-url", contentEncoding: "base64url" });
  expect([isFile({ contentEncoding: "base64" }), isFile({ format: "base64" }), isFile({ format: "date" })]).toEqual([true, true, false]);
});

test("a path has steps, also with quotes", () => {
  expect(parsePath("$.items[2].count")).toEqual(["items", "2", "count"]);
  expect(parsePath("$['a b'].c")).toEqual(["a b", "c"]);
  expect(parsePath("$")).toEqual([]);
});

test("problems become errors of the fields", () => {
  expect(toFormErrors([{ path: "$.a[0]", message: "bad" }, { path: "$", message: "all" }])).toEqual({
    a: { "0": { __errors: ["bad"] } },
    __errors: ["all"],
  });
});

test("a problem with a hostile name changes no other object", () => {
  toFormErrors([{ path: "$.__proto__.polluted", message: "bad" }]);
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  expect(({} as Record<string, unknown>).__errors).toBeUndefined();
});

test("only a schema of moderate size is drawn as a form", () => {
  const properties = Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`field ${index}`, { type: "string" }]));
  expect([isDrawable({ type: "object" }), isDrawable({ properties })]).toEqual([true, false]);
});

test("what a form leaves empty is not sent, and null is", () => {
  expect(dropEmpty({ a: undefined as never, b: null, c: { d: undefined as never }, e: [1] })).toEqual({ b: null, c: {}, e: [1] });
});

test("the validator finds the choice that fits, also by reference", () => {
  const root = { $defs: { Cat: { type: "object" as const, required: ["meow"] } } };
  expect(validator.isValid({ $ref: "#/$defs/Cat" }, { meow: 1 } as never, root)).toBe(true);
  expect(validator.isValid({ $ref: "#/$defs/Cat" }, {} as never, root)).toBe(false);
  expect(validator.isValid({ type: "integer" }, 2 as never, root)).toBe(true);
});

const tool = (name: string, more: Partial<ToolSummary> = {}): ToolSummary => ({
  name,
  title: null,
  description: "",
  effects: [],
  source: "",
  tags: [],
  tokens: 1,
  ...more,
});

test("tools are found by words, effect, source and tag", () => {
  const tools = [tool("send", { description: "get mail" }), tool("get_mail", { effects: ["read_only"], tags: ["x"] }), tool("other", { source: "s" })];
  const none = { text: "", effect: "", source: "", tag: "" };
  const names = (filter: object) => filterTools(tools, { ...none, ...filter }).map((each) => each.name);
  expect(names({ text: "get MAIL" })).toEqual(["get_mail", "send"]);
  expect(names({ effect: "read_only" })).toEqual(["get_mail"]);
  expect(names({ effect: "none" })).toEqual(["send", "other"]);
  expect(names({ source: "own" })).toEqual(["send", "get_mail"]);
  expect(names({ source: "s" })).toEqual(["other"]);
  expect(names({ tag: "x" })).toEqual(["get_mail"]);
});

test("a difference keeps the lines that are the same", () => {
  expect(diffLines("a\nb\nc", "a\nx\nc").map((line) => line.kind[0] + line.text)).toEqual(["sa", "rb", "ax", "sc"]);
  expect(diffLines("a", "a")).toEqual([{ kind: "same", text: "a" }]);
});
