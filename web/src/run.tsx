/** Run a tool: form and JSON in step, checks before the call, progress, cancel, result, history. */
import { lazy, Suspense } from "preact/compat";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, post, stream } from "./api";
import { Approval } from "./approval";
import { Boundary } from "./boundary";
import { useDebounced, useStored } from "./hooks";
import { isDrawable, toFormErrors } from "./schema";
import { Shown, formatMilliseconds, plural, toJson } from "./text";
import type { Answer, Arguments, CallEvent, CallResult, Plan, Repair, ToolDetail } from "./types";
import { Content, Diff } from "./values";

/** The form library is half of the page's code: the list is drawn before it is loaded. */
const SchemaForm = lazy(() => import("./form"));

const MAX_HISTORY = 30;
const MAX_KEPT = 20_000;

interface Past {
  id: number;
  args: Arguments;
  ok: boolean;
  duration: number;
  text: string;
}

export function RunPanel({ tool, args, onArguments }: { tool: ToolDetail; args: Arguments; onArguments: (args: Arguments) => void }) {
  const [view, setView] = useState<"form" | "json">("form");
  const [text, setText] = useState(() => toJson(args));
  const [isTouched, setTouched] = useState(Object.keys(args).length > 0);
  const [plan, setPlan] = useState<Plan | null>(null);
  const [result, setResult] = useState<CallResult | null>(null);
  const [progress, setProgress] = useState<Extract<CallEvent, { type: "progress" }> | null>(null);
  const [problem, setProblem] = useState("");
  const [running, setRunning] = useState<AbortController | null>(null);
  const [past, setPast] = useStored<Past[]>(`toolmason-history ${tool.name}`, []);
  const lastText = useRef(text);
  const runButton = useRef<HTMLButtonElement>(null);

  const setArguments = (next: Arguments) => {
    onArguments(next);
    setText((lastText.current = toJson(next)));
    setTouched(true);
  };
  const editText = (next: string) => {
    setText((lastText.current = next));
    setTouched(true);
    const data = parseObject(next);
    if (data) onArguments(data);
  };
  // The text goes to the engine as a model would send it: it repairs near misses, and keeps every digit.
  useDebounced(
    () => {
      if (isTouched) post<Plan>("checks", { tool: tool.name, arguments: text }).then(setPlan, () => setPlan(null));
    },
    200,
    text,
    isTouched,
    tool,
  );
  useEffect(() => () => running?.abort(), [running]);

  const run = async (path: string, body: unknown) => {
    const controller = new AbortController();
    setRunning(controller);
    setResult(null);
    setProblem("");
    setProgress(null);
    setTouched(true);
    try {
      for await (const event of stream<CallEvent>(path, body, controller.signal)) {
        if (event.type === "progress") setProgress(event);
        else {
          setResult(event.result);
          if (!event.result.request) remember(event.result);
        }
      }
    } catch (error) {
      setProblem(controller.signal.aborted ? "Cancelled." : error instanceof ApiError ? error.message : String(error));
    } finally {
      setRunning(null);
      setProgress(null);
    }
  };
  const start = () => void run("calls", { tool: tool.name, arguments: text });
  const answer = (request: string) => (value: Answer) => {
    runButton.current?.focus(); // the question goes away, with the keyboard on it
    void run("approvals", { id: request, answer: value });
  };
  const remember = (outcome: CallResult) => {
    const shown = outcome.error ? outcome.error.message : outcome.content.map((part) => ("text" in part ? (part.text ?? "") : part.type)).join("\n");
    const entry: Past = {
      id: Date.now(),
      args: parseObject(lastText.current) ?? {},
      ok: outcome.ok,
      duration: outcome.duration,
      text: shown.slice(0, MAX_KEPT),
    };
    setPast([entry, ...past].slice(0, MAX_HISTORY));
  };
  const errors = result?.error?.parameters ?? (isTouched ? plan?.error?.parameters : undefined);
  const extraErrors = useMemo(() => toFormErrors(errors ?? []), [errors]);

  return (
    <div
      class="run"
      onKeyDown={(event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !running) start();
        if (event.key === "Escape" && running) running.abort();
      }}
    >
      <div class="toggle" role="group" aria-label="Arguments as">
        <button type="button" aria-pressed={view === "form"} onClick={() => setView("form")}>
          Form
        </button>
        <button type="button" aria-pressed={view === "json"} onClick={() => setView("json")}>
          JSON
        </button>
      </div>
      {view === "form" ? (
        <Boundary key={JSON.stringify(tool.input_schema).length} fallback={<NoForm onJson={() => setView("json")} />}>
          <Suspense fallback={<p role="status">Loading the form…</p>}>
            {isDrawable(tool.input_schema) ? (
              <SchemaForm schema={tool.input_schema} value={args} onChange={setArguments} errors={extraErrors} />
            ) : (
              <NoForm onJson={() => setView("json")} />
            )}
          </Suspense>
        </Boundary>
      ) : (
        <label class="field">
          <span>Arguments as JSON</span>
          <textarea rows={12} spellcheck={false} value={text} onInput={(event) => editText(event.currentTarget.value)} aria-invalid={parseObject(text) === null} />
        </label>
      )}
      {isTouched && plan && !running && <PlanView plan={plan} isDone={result !== null} />}
      <div class="buttons">
        <button ref={runButton} type="button" class={running ? "danger" : "primary"} onClick={() => (running ? running.abort() : start())}>
          {running ? "Cancel" : "Run"}
        </button>
        <button type="button" disabled={Boolean(running)} onClick={() => setArguments({})}>
          Clear
        </button>
        <span class="muted keys">Ctrl+Enter runs, Esc cancels</span>
      </div>
      <div role="status" aria-live="polite">
        {running && <ProgressView progress={progress} />}
      </div>
      {problem && (
        <p class={problem === "Cancelled." ? "note" : "error"} role="alert">
          <Shown text={problem} />
        </p>
      )}
      {result?.request && <Approval key={result.request.id} request={result.request} isBusy={Boolean(running)} onAnswer={answer(result.request.id)} />}
      {result && !result.request && <ResultView result={result} />}
      <History past={past} onRepeat={(entry) => setArguments(entry.args)} onClear={() => setPast([])} />
    </div>
  );
}

function NoForm({ onJson }: { onJson: () => void }) {
  return (
    <p class="warning" role="alert">
      The schema is too large or too deep for a form.{" "}
      <button type="button" onClick={onJson}>
        Write the arguments as JSON
      </button>
    </p>
  );
}

export function parseObject(text: string): Arguments | null {
  try {
    const data: unknown = JSON.parse(text);
    return data && typeof data === "object" && !Array.isArray(data) ? (data as Arguments) : null;
  } catch {
    return null;
  }
}

function PlanView({ plan, isDone }: { plan: Plan; isDone: boolean }) {
  if (plan.error)
    return isDone ? null : (
      <p class="warning">
        <Shown text={plan.error.message} />
      </p>
    );
  return (
    <div class="plan">
      <p>
        {plan.repairs.length ? "Valid after repairs." : "Valid."} {plan.needs_approval && <b>The call needs your approval.</b>}{" "}
        {plan.preview && (
          <>
            Effect: <Shown text={plan.preview} />
          </>
        )}
      </p>
      <Repairs repairs={plan.repairs} />
    </div>
  );
}

function Repairs({ repairs }: { repairs: Repair[] }) {
  if (!repairs.length) return null;
  return (
    <ul class="repairs">
      {repairs.map((repair, index) => (
        <li key={index}>
          <code>
            <Shown text={repair.path} />
          </code>
          : {repair.rule}, <Shown text={JSON.stringify(repair.before) ?? ""} /> → <Shown text={JSON.stringify(repair.after) ?? ""} />
        </li>
      ))}
    </ul>
  );
}

export function ProgressView({ progress }: { progress: { done: number; total: number | null; message: string | null } | null }) {
  return (
    <div class="progress">
      <progress aria-label="Progress of the call" max={progress?.total ?? undefined} value={progress?.total ? progress.done : undefined} />
      <span>
        {progress ? <Shown text={progress.message ?? `${progress.done}${progress.total ? ` of ${progress.total}` : ""}`} /> : "Running…"}
      </span>
    </div>
  );
}

function ResultView({ result }: { result: CallResult }) {
  return (
    <section class={`result ${result.ok ? "" : "failed"}`} aria-label="Result">
      <h3>
        {result.ok ? "Result" : "Error"}{" "}
        <span class="muted">
          {formatMilliseconds(result.duration * 1000)}
          {result.attempts > 1 && `, ${plural(result.attempts, "attempt")}`}
          {result.origin !== "own" && `, from ${result.origin}`}
        </span>
      </h3>
      {result.error ? (
        <div role="alert">
          <p class="error">
            <b>{result.error.code}</b>: <Shown text={result.error.message} />
          </p>
          {result.error.parameters && (
            <ul>
              {result.error.parameters.map((each, index) => (
                <li key={index}>
                  <code>
                    <Shown text={each.path} />
                  </code>
                  : <Shown text={each.message} />
                </li>
              ))}
            </ul>
          )}
        </div>
      ) : (
        <Content parts={result.content} />
      )}
      {result.structured !== null && (
        <>
          <h4>Structured</h4>
          <Content parts={[{ type: "text", text: JSON.stringify(result.structured) }]} />
        </>
      )}
      {result.repairs.length > 0 && <h4>Repairs</h4>}
      <Repairs repairs={result.repairs} />
    </section>
  );
}

function History({ past, onRepeat, onClear }: { past: Past[]; onRepeat: (entry: Past) => void; onClear: () => void }) {
  const [picked, setPicked] = useState<number[]>([]);
  if (!past.length) return null;
  const chosen = picked.map((id) => past.find((entry) => entry.id === id)).filter((entry) => entry !== undefined);
  const toggle = (id: number) => setPicked(picked.includes(id) ? picked.filter((each) => each !== id) : [...picked, id].slice(-2));
  const describe = (entry: Past) => `${JSON.stringify(entry.args, null, 2)}\n\n${pretty(entry.text)}`;
  return (
    <details class="history">
      <summary>History ({past.length})</summary>
      <table>
        <thead>
          <tr>
            <th scope="col">Compare</th>
            <th scope="col">Arguments</th>
            <th scope="col">Outcome</th>
            <th scope="col">Time</th>
            <th scope="col">Repeat</th>
          </tr>
        </thead>
        <tbody>
          {past.map((entry, index) => (
            <tr key={entry.id}>
              <td>
                <input type="checkbox" aria-label={`Compare call ${past.length - index}`} checked={picked.includes(entry.id)} onChange={() => toggle(entry.id)} />
              </td>
              <td class="cut">
                <Shown text={JSON.stringify(entry.args).slice(0, 120)} />
              </td>
              <td class="cut">
                <span class={entry.ok ? "mark-ok" : "mark-failed"}>{entry.ok ? "ok" : "failed"}</span> <Shown text={entry.text.slice(0, 80)} />
              </td>
              <td>{formatMilliseconds(entry.duration * 1000)}</td>
              <td>
                <button type="button" onClick={() => onRepeat(entry)} aria-label={`Use the arguments of call ${past.length - index}`}>
                  Use
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {chosen.length === 2 && chosen[0] && chosen[1] ? (
        <Diff before={describe(chosen[0])} after={describe(chosen[1])} label="Difference of the two calls" />
      ) : (
        <p class="muted">Choose two calls to compare their arguments and results.</p>
      )}
      <button type="button" onClick={onClear}>
        Forget the history
      </button>
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
