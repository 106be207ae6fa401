/** Draw spans as a waterfall: one row for each, with its place in time. */
import { Shown, formatMilliseconds } from "./text";
import type { Span } from "./types";

const MAX_ROWS = 500;

/** Colour of a span by the first word of its name. */
const KINDS = new Map([
  ["turn", "turn"],
  ["chat", "turn"],
  ["run", "whole"],
]);

export function Waterfall({ spans, label }: { spans: Span[]; label: string }) {
  if (!spans.length) return null;
  // Not `Math.min(...)`, which fails with a hundred thousand of them.
  const start = spans.reduce((least, span) => Math.min(least, span.start), Infinity);
  const total = spans.reduce((most, span) => Math.max(most, span.end - start), 1);
  return (
    <section aria-label={label} class="waterfall">
      <ol>
        {spans.slice(0, MAX_ROWS).map((span, index) => (
          <li key={index} class={span.failed ? "failed" : ""}>
            <span class="span-name" style={{ paddingLeft: `${Math.min(span.depth, 8)}rem` }}>
              <Shown text={span.name} /> {span.failed && <span class="mark">failed</span>}
            </span>
            <span class="span-time">{formatMilliseconds(span.end - span.start)}</span>
            <span class="lane" aria-hidden="true">
              <i
                class={`bar ${KINDS.get(span.name.split(" ")[0] ?? "") ?? ""}`}
                style={{ left: `${(100 * (span.start - start)) / total}%`, width: `${(100 * (span.end - span.start)) / total}%` }}
              />
            </span>
          </li>
        ))}
      </ol>
      {spans.length > MAX_ROWS && <p class="muted">{spans.length - MAX_ROWS} more are not shown.</p>}
    </section>
  );
}
