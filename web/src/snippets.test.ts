import { expect, test } from "vitest";
import { asCommand, asCurl, asMcp, asPython, toPython } from "./snippets";
import { visible } from "./text";

const args = { city: "Praha's", days: [1, 2.5], deep: { ok: true, no: null } };

test("Python has its own words for JSON values", () => {
  expect(toPython(args)).toBe(`{"city": "Praha's", "days": [1, 2.5], "deep": {"ok": True, "no": None}}`);
});

test("Python imports the toolbox of the target", () => {
  expect(asPython("src/app.py:box", "add", { a: 1 })).toBe('from app import box\n\nresult = box.call_sync("add", {"a": 1})\nprint(result.text)\n');
  expect(asPython("app.py", "add", {})).toContain("import app\n\nbox = Toolbox(app)");
  expect(asPython("mcp.json", "add", {})).toContain('McpServer.from_config("mcp.json")');
  expect(asPython("pkg:app.tools", "add", {})).toContain("from pkg import app\n\nbox = app.tools");
  expect(asPython(null, "add", {})).toContain("box = discover()");
});

test("a shell takes the arguments as they are", () => {
  expect(asCommand("app.py", "add", { city: "Praha's" })).toBe(`toolmason call app.py add --arguments '{"city":"Praha'\\''s"}'\n`);
});

test("curl says how to serve the tools, and sends the call of MCP", () => {
  const text = asCurl("app.py", "add", { a: 1 });
  expect(text).toContain("# First: toolmason serve app.py --transport http");
  expect(text).toContain('"method":"tools/call","params":{"name":"add","arguments":{"a":1},');
  expect(text).toContain("-H 'mcp-name: add'");
  expect(JSON.parse(asMcp("add", { a: 1 }))).toMatchObject({ method: "tools/call", params: { name: "add", arguments: { a: 1 } } });
});

test("code to paste has no character that a terminal would obey", () => {
  const name = "a\x1b[201~\x03'b\u202e";
  const args = { key: "\x9b\u202e\x7f" };
  for (const text of [asPython(null, name, args), asCommand(null, name, args), asCurl(null, name, args), asMcp(name, args)]) expect(visible(text)).toBe(text);
  expect(asCommand(null, name, {})).toBe("toolmason call $'a\\u001b[201~\\u0003\\'b\\u202e' --arguments '{}'\n");
  expect(JSON.parse(asMcp(name, args))).toMatchObject({ params: { name, arguments: args } });
});
