/** Show values of any size: text, JSON as a tree, and the parts of a result. Only what is open is in the document. */
import { Fragment, createContext } from "preact";
import { useContext, useMemo, useState } from "preact/hooks";
import { diffLines } from "./diff";
import { Shown, formatBytes, plural } from "./text";
import type { Json, Part } from "./types";

const CHUNK = 20_000;
const ITEMS = 100;
const LARGE = 500_000;

/** True in a file that is shared: it has no buttons, so that what they would show is there from the start. */
export const Shared = createContext(false);
const SHARED_CHUNK = 200_000;

export function LongText({ text, label }: { text: string; label: string }) {
  const [shown, setShown] = useState(useContext(Shared) ? SHARED_CHUNK : CHUNK);
  return (
    <div class="long-text">
      <pre tabIndex={0} aria-label={label}>
        <Shown text={text.slice(0, shown)} limit={shown} />
      </pre>
      {shown < text.length && (
        <p class="more">
          <span>
            {formatBytes(shown)} of {formatBytes(text.length)}
          </span>
          <button type="button" onClick={() => setShown(shown + 5 * CHUNK)}>
            Show more
          </button>
          <button type="button" onClick={() => download("result.txt", text)}>
            Download
          </button>
        </p>
      )}
    </div>
  );
}

export function download(name: string, text: string, type = "text/plain"): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export function JsonTree({ value, name, isOpen = true }: { value: Json; name?: string; isOpen?: boolean }) {
  const isShared = useContext(Shared);
  const [open, setOpen] = useState(isOpen || isShared);
  const [count, setCount] = useState(isShared ? Infinity : ITEMS);
  const key = name === undefined ? null : (
    <span class="json-key">
      <Shown text={name} />
      {": "}
    </span>
  );
  if (value === null || typeof value !== "object")
    return (
      <div class="json-row">
        {key}
        <JsonScalar value={value} />
      </div>
    );
  const entries: [string, Json][] = Array.isArray(value) ? value.map((item, index) => [String(index), item]) : Object.entries(value);
  const summary = Array.isArray(value) ? `[ ${plural(entries.length, "item")} ]` : `{ ${plural(entries.length, "key")} }`;
  return (
    <details class="json-node" open={open} onToggle={(event) => setOpen((event.currentTarget as HTMLDetailsElement).open)}>
      <summary>
        {key}
        <span class="json-summary">{summary}</span>
      </summary>
      {open && (
        <div class="json-children">
          {entries.slice(0, count).map(([each, item]) => (
            <JsonTree key={each} name={each} value={item} isOpen={false} />
          ))}
          {count < entries.length && (
            <button type="button" class="quiet" onClick={() => setCount(count + 5 * ITEMS)}>
              {`${(entries.length - count).toLocaleString("en")} more`}
            </button>
          )}
        </div>
      )}
    </details>
  );
}

function JsonScalar({ value }: { value: null | boolean | number | string }) {
  const [whole, setWhole] = useState(useContext(Shared));
  if (typeof value !== "string") return <span class={`json-${value === null ? "null" : typeof value}`}>{String(value)}</span>;
  const text = whole ? value : value.slice(0, 500);
  return (
    <span class="json-string">
      “<Shown text={text} />”
      {text.length < value.length && (
        <button type="button" class="quiet" onClick={() => setWhole(true)}>
          {`${formatBytes(value.length - text.length)} more`}
        </button>
      )}
    </span>
  );
}

function parse(text: string): Json | undefined {
  const first = text.trimStart()[0];
  if (first !== "{" && first !== "[") return undefined;
  try {
    return JSON.parse(text, keepDigits as (key: string, value: unknown) => unknown) as Json;
  } catch {
    return undefined;
  }
}

/** Keep the digits of an integer that JavaScript would round. A browser without the source rounds it. */
function keepDigits(_key: string, value: unknown, context?: { source?: string }): unknown {
  const isRounded = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isRounded && context?.source && /^-?\d+$/.test(context.source) ? BigInt(context.source) : value;
}

function TextPart({ text }: { text: string }) {
  const isLarge = text.length > LARGE;
  const [view, setView] = useState<"tree" | "text">(useContext(Shared) || isLarge ? "text" : "tree");
  const data = useMemo(() => (view === "tree" || !isLarge ? parse(text) : undefined), [text, view, isLarge]);
  const mayBeTree = data !== undefined || (isLarge && /^\s*[[{]/.test(text));
  return (
    <div class="part">
      {mayBeTree && (
        <div class="toggle" role="group" aria-label="View of the result">
          <button type="button" aria-pressed={view === "tree"} onClick={() => setView("tree")}>
            Tree
          </button>
          <button type="button" aria-pressed={view === "text"} onClick={() => setView("text")}>
            Text
          </button>
        </div>
      )}
      {view === "tree" && data !== undefined ? <JsonTree value={data} /> : <LongText text={text} label="Text of the result" />}
    </div>
  );
}

/** Only these become links: others could run code, or open files. */
function isWebAddress(uri: string): boolean {
  return /^https?:\/\//i.test(uri);
}

export function Content({ parts }: { parts: Part[] }) {
  if (!parts.length) return <p class="muted">The result is empty.</p>;
  return (
    <div class="content">
      {parts.map((part, index) => (
        <ContentPart key={index} part={part} />
      ))}
    </div>
  );
}

function ContentPart({ part }: { part: Part }) {
  switch (part.type) {
    case "text":
      return part.text === "" ? <p class="muted">Empty text.</p> : <TextPart text={part.text} />;
    case "image":
      return /^image\/[\w.+-]+$/.test(part.mime_type) ? (
        <img src={`data:${part.mime_type};base64,${part.data}`} alt={`Image of the result, ${part.mime_type}`} />
      ) : (
        <p class="muted">An image of unknown type.</p>
      );
    case "audio":
      return /^audio\/[\w.+-]+$/.test(part.mime_type) ? (
        <audio controls src={`data:${part.mime_type};base64,${part.data}`} aria-label="Audio of the result" />
      ) : (
        <p class="muted">Audio of unknown type.</p>
      );
    case "resource_link":
      return (
        <p>
          Link:{" "}
          {isWebAddress(part.uri) ? (
            <a href={part.uri} target="_blank" rel="noopener noreferrer">
              <Shown text={part.uri} limit={200} />
            </a>
          ) : (
            <code>
              <Shown text={part.uri} />
            </code>
          )}{" "}
          {[part.name, part.description].filter(Boolean).map((text, index) => (
            <Fragment key={index}>
              <Shown text={text ?? ""} />{" "}
            </Fragment>
          ))}
        </p>
      );
    case "resource":
      return (
        <div class="part">
          <p>
            Resource{" "}
            <code>
              <Shown text={part.uri} />
            </code>
          </p>
          {part.text === undefined ? (
            <p class="muted">{formatBytes(((part.data?.length ?? 0) * 3) / 4)} of data.</p>
          ) : (
            <TextPart text={part.text} />
          )}
        </div>
      );
  }
}

export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  const lines = useMemo(() => diffLines(before, after), [before, after]);
  const signs = { same: " ", removed: "−", added: "+" };
  return (
    <pre class="diff" tabIndex={0} aria-label={label}>
      {lines.map((line, index) => (
        <div key={index} class={`diff-${line.kind}`}>
          {signs[line.kind]} <Shown text={line.text} />
        </div>
      ))}
    </pre>
  );
}

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState("");
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => setDone("Copied"),
      () => setDone("Select the text, then copy"),
    );
  return (
    <span class="copy">
      <button type="button" onClick={copy}>
        {label}
      </button>
      <span role="status" class="muted">
        {done}
      </span>
    </span>
  );
}
