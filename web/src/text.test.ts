import { expect, test } from "vitest";
import { formatBytes, formatMilliseconds, plural, toJson, visible } from "./text";

test("characters that reorder or hide text become escapes", () => {
  expect(visible("a\u202eb\u200bc\u001b[31m")).toBe("a\\u202eb\\u200bc\\u001b[31m");
  expect(visible("\u{e0041}")).toBe("\\U000e0041");
  expect(visible("\u3164\u00a0")).toBe("\\u3164\\u00a0");
});

test("plain text, other alphabets and line breaks stay", () => {
  const text = "Größe\n\tשלום 你好 😀 é";
  expect(visible(text)).toBe(text);
});

test("JSON to edit has hidden characters as its own escapes", () => {
  const data = { "\u202ek": ["a\u200bb", "\u{e0041}", 1, null] };
  const text = toJson(data);
  expect(text).toContain("\\u202ek");
  expect(text).toContain("\\udb40\\udc41");
  expect(visible(text)).toBe(text);
  expect(JSON.parse(text)).toEqual(data);
});

test("numbers are short", () => {
  expect([formatMilliseconds(0.5), formatMilliseconds(5.25), formatMilliseconds(1500)]).toEqual(["500 µs", "5.3 ms", "1.50 s"]);
  expect([formatBytes(12), formatBytes(2048), formatBytes(5 * 1024 * 1024)]).toEqual(["12 bytes", "2.0 KB", "5.0 MB"]);
  expect([plural(1, "tool"), plural(1000, "tool")]).toEqual(["1 tool", "1,000 tools"]);
});
