/** The items of a run: text, cards of calls with their approvals, and delegated chats as a tree. */
import { memo } from "preact/compat";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { Approval } from "./approval";
import type { Card, Item, Run } from "./chatState";
import { ProgressView } from "./run";
import { Shown, formatMilliseconds, plural } from "./text";
import type { Answer, Reply, State } from "./types";
import { Content, JsonTree, Shared } from "./values";
import { Waterfall } from "./waterfall";

type OnAnswer = (request: string, answer: Answer) => void;

export function Transcript({ items, onAnswer, answered }: { items: Item[]; onAnswer: OnAnswer; answered: Record<string, Answer> }) {
  return (
    <ol class="transcript">
      {items.map((item, index) => (
        <li key={index} class={`item item-${item.kind}`}>
          <ItemView item={item} onAnswer={onAnswer} answered={answered} />
        </li>
      ))}
    </ol>
  );
}

const ItemView = memo(function ItemView({ item, onAnswer, answered }: { item: Item; onAnswer: OnAnswer; answered: Record<string, Answer> }) {
  switch (item.kind) {
    case "user":
      return (
        <div class="bubble">
          <span class="who">You</span>
          <p>
            <Shown text={item.text} />
          </p>
        </div>
      );
    case "text":
      return (
        <div class="answer">
          <span class="who">Model</span>
          <p>
            <Shown text={item.text} />
          </p>
        </div>
      );
    case "thought":
      return (
        <details class="thought">
          <summary>Reasoning</summary>
          <p>
            <Shown text={item.text} />
          </p>
        </details>
      );
    case "answer":
      return (
        <div class="answer">
          <span class="who">{item.isComplete ? "Typed answer" : "Typed answer, being written"}</span>
          <JsonTree value={item.data} />
        </div>
      );
    case "note":
      return (
        <p class="note">
          <Shown text={item.text} />
        </p>
      );
    case "error":
      return (
        <p class="error" role="alert">
          <Shown text={item.text} />
        </p>
      );
    case "card":
      return <CardView card={item} onAnswer={onAnswer} answered={answered} />;
  }
});

const STATES: Record<Card["state"], string> = {
  writing: "being written",
  running: "running",
  waiting: "waits for you",
  done: "done",
  failed: "failed",
};

function CardView({ card, onAnswer, answered }: { card: Card; onAnswer: OnAnswer; answered: Record<string, Answer> }) {
  const time = card.started !== null && card.ended !== null && card.state !== "waiting" ? formatMilliseconds(card.ended - card.started) : "";
  const isAnswered = card.request !== null && card.request.id in answered;
  const [choice, setChoice] = useState<boolean | null>(null);
  const isLive = card.state === "running" || card.state === "waiting" || card.state === "failed" || card.items.length > 0;
  const isShared = useContext(Shared);
  // A call is open while it needs attention, until the reader decides otherwise.
  const isOpen = isShared || (choice ?? isLive);
  return (
    <details class={`card card-${card.state}`} open={isOpen}>
      <summary
        onClick={(event) => {
          event.preventDefault();
          setChoice(!isOpen);
        }}
      >
        <span class="card-name">
          <Shown text={card.name} />
        </span>
        <span class="card-arguments">
          <Shown text={card.args.slice(0, 160)} />
        </span>
        <span class={`badge state-${card.state}`}>{STATES[card.state]}</span>
        <span class="muted">{time}</span>
      </summary>
      {isOpen && (
        <div class="card-body">
          {(card.state !== "waiting" || !card.request || isAnswered) && (
            <pre class="arguments">
              <Shown text={pretty(card.args)} />
            </pre>
          )}
          {card.state === "running" && <ProgressView progress={card.progress} />}
          {card.error && (
            <p class="error">
              <b>{card.error.code}</b>: <Shown text={card.error.message} />
            </p>
          )}
          {card.state === "done" && <Content parts={card.content} />}
          {card.request && card.state === "waiting" && !isAnswered && (
            <Approval request={card.request} onAnswer={(answer) => onAnswer(card.request?.id ?? "", answer)} />
          )}
          {isAnswered && card.state === "waiting" && <p class="note">Answered; other calls wait for you.</p>}
          {card.items.length > 0 && (
            <div class="delegated">
              <span class="who">This tool is a chat</span>
              <Transcript items={card.items} onAnswer={onAnswer} answered={answered} />
            </div>
          )}
        </div>
      )}
    </details>
  );
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function Facts({ run, state }: { run: Run; state: State }) {
  if (run.state === "idle") return null;
  const usage = run.reply?.usage;
  const tokens = usage ? usage.input_tokens + usage.output_tokens : 0;
  const limit = (name: string) => (state.limits[name] ? ` of ${state.limits[name]}` : "");
  return (
    <section class="facts" aria-label="Facts of the run">
      <dl>
        <div>
          <dt>Turns</dt>
          <dd>
            {run.steps}
            {limit("steps")}
          </dd>
        </div>
        <div>
          <dt>Calls</dt>
          <dd>
            {run.calls}
            {limit("calls")}
          </dd>
        </div>
        <div>
          <dt>Tokens</dt>
          <dd>{tokens ? `${usage?.input_tokens.toLocaleString("en")} in, ${usage?.output_tokens.toLocaleString("en")} out` : "not counted"}</dd>
        </div>
        <div>
          <dt>Cost</dt>
          <dd>{formatCost(run.reply)}</dd>
        </div>
        <div>
          <dt>End</dt>
          <dd>{run.reply?.finish ?? run.state}</dd>
        </div>
      </dl>
      <Waterfall spans={run.spans} label="Timeline of the run" />
      {run.spans.length > 0 && <p class="muted">{plural(run.spans.length, "span")}, timed by this page.</p>}
    </section>
  );
}

/** Return the cost of a reply. The prices of the library are in dollars; those of a target's chat may be in another currency. */
function formatCost(reply: Reply | null): string {
  if (!reply) return "known at the end";
  if (reply.cost === null || reply.cost === undefined) return "unknown: the model has no price";
  return reply.cost === 0 ? "0" : reply.cost.toPrecision(3);
}

/** Scroll to the end while the reader is at the end. */
export function useStickyEnd(dependency: unknown) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  useEffect(() => {
    const element = box.current;
    if (element && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [dependency]);
  const onScroll = () => {
    const element = box.current;
    if (element) isAtEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 80;
  };
  return { box, onScroll };
}
