/** Show text of tools and servers so that hidden characters are seen, and not obeyed. */
import { Fragment } from "preact";

/** Invisible and direction-changing characters, as in `toolmason._text.escape_hidden`. */
const HIDDEN =
  /(?![\n\t ])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Cn}\p{Zl}\p{Zp}\p{Zs}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;

function escapeOne(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  return code > 0xffff ? `\\U${code.toString(16).padStart(8, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** Return text with every hidden character as an escape. */
export function visible(text: string): string {
  return text.replace(HIDDEN, escapeOne);
}

/** Return data as JSON to edit or to paste. Hidden characters are escapes of JSON, so that it still means the same. */
export function toJson(value: unknown, indent = 2): string {
  const escapeUnits = (text: string) =>
    Array.from({ length: text.length }, (_, index) => `\\u${text.charCodeAt(index).toString(16).padStart(4, "0")}`).join("");
  return JSON.stringify(value, null, indent).replace(HIDDEN, escapeUnits);
}

/** Several hidden characters in a row get one mark, so that thousands of them do not freeze the page. */
const HIDDEN_RUN = new RegExp(`(?:${HIDDEN.source})+`, "gu");

/** Characters of a text that are drawn; results have their own way to show more. */
const MAX_SHOWN = 20_000;

/** Text from outside: isolated in direction, its hidden characters marked. */
export function Shown({ text, limit = MAX_SHOWN }: { text: string; limit?: number }) {
  const parts: (string | { escape: string })[] = [];
  const drawn = text.slice(0, limit);
  let end = 0;
  for (const match of drawn.matchAll(HIDDEN_RUN)) {
    if (match.index > end) parts.push(drawn.slice(end, match.index));
    parts.push({ escape: visible(match[0]) });
    end = match.index + match[0].length;
  }
  if (end < drawn.length) parts.push(drawn.slice(end));
  return (
    <bdi>
      {parts.map((part, index) =>
        typeof part === "string" ? (
          <Fragment key={index}>{part}</Fragment>
        ) : (
          <span key={index} class="hidden-character" title="A hidden character">
            {part.escape}
          </span>
        ),
      )}
      {drawn.length < text.length && <span class="muted"> … {plural(text.length - drawn.length, "more character")}</span>}
    </bdi>
  );
}

export function formatMilliseconds(ms: number): string {
  if (ms < 1) return `${(ms * 1000).toFixed(0)} µs`;
  return ms < 1000 ? `${ms.toFixed(ms < 10 ? 1 : 0)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

export function formatBytes(count: number): string {
  if (count < 1024) return `${count} bytes`;
  return count < 1024 * 1024 ? `${(count / 1024).toFixed(1)} KB` : `${(count / 1024 / 1024).toFixed(1)} MB`;
}

export function plural(count: number, noun: string): string {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
