/** Ask the reader about a call: what it would do, its arguments, and the answer. */
import { useEffect, useRef, useState } from "preact/hooks";
import { post } from "./api";
import { useDebounced } from "./hooks";
import { Shown, toJson, visible } from "./text";
import type { Answer, ApprovalRequest, Arguments, Plan } from "./types";

export function Approval({ request, onAnswer, isBusy }: { request: ApprovalRequest; onAnswer: (answer: Answer) => void; isBusy?: boolean }) {
  const original = toJson(request.arguments);
  const [isEditing, setEditing] = useState(false);
  const [text, setText] = useState(original);
  const [reason, setReason] = useState("");
  const [plan, setPlan] = useState<Plan | null>(null);
  const section = useRef<HTMLElement>(null);
  // The question is the next thing to do after a message or a run, also for those who use no mouse.
  useEffect(() => {
    const active = document.activeElement;
    if (!active || active === document.body || active.closest(".run, .composer")) section.current?.focus();
  }, []);
  let edited: Arguments | null = null;
  try {
    const data: unknown = JSON.parse(text);
    if (data && typeof data === "object" && !Array.isArray(data)) edited = data as Arguments;
  } catch {
    // Shown below: the text is not JSON yet.
  }
  const isChanged = text !== original;
  useDebounced(
    () => {
      if (isEditing && isChanged && edited) post<Plan>("checks", { tool: request.tool, arguments: edited }).then(setPlan, () => setPlan(null));
    },
    250,
    text,
    isEditing,
  );
  const preview = isChanged && plan ? plan.preview : request.preview;
  const problem = isChanged ? (edited === null ? "This is not a JSON object." : (plan?.error?.message ?? "")) : "";
  return (
    <section ref={section} class="approval" tabIndex={-1} aria-label={`Approval of ${visible(request.tool)}`}>
      <h3>
        Allow <Shown text={request.path ?? request.tool} />?{" "}
        {request.effects.map((effect) => (
          <span key={effect} class={`badge effect-${effect}`}>
            {effect.replace("_", "-")}
          </span>
        ))}
      </h3>
      {request.reason && (
        <p class="warning">
          <Shown text={request.reason} />
        </p>
      )}
      {preview && (
        <p class="preview">
          <Shown text={preview} />
        </p>
      )}
      {isEditing ? (
        <label class="field">
          <span>Arguments</span>
          <textarea rows={6} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
      ) : (
        <pre class="arguments">
          <Shown text={text} />
        </pre>
      )}
      {problem && (
        <p class="error" role="alert">
          <Shown text={problem} />
        </p>
      )}
      <div class="buttons">
        <button type="button" class="primary" disabled={isBusy || Boolean(problem)} onClick={() => onAnswer(isChanged && edited ? { approved: true, arguments: edited } : true)}>
          {isChanged ? "Allow the edited call" : "Allow"}
        </button>
        <button type="button" disabled={isBusy} aria-pressed={isEditing} onClick={() => setEditing(!isEditing)}>
          Edit
        </button>
        <button type="button" class="danger" disabled={isBusy} onClick={() => onAnswer(reason ? { approved: false, reason } : false)}>
          Deny
        </button>
        <label class="inline">
          <span>Reason</span>
          <input type="text" value={reason} placeholder="for the model, if you deny" onInput={(event) => setReason(event.currentTarget.value)} />
        </label>
      </div>
    </section>
  );
}
