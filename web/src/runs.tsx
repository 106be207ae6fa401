/** The runs of the journal: state, steps as a waterfall, resume and approve. */
import { useEffect, useRef, useState } from "preact/hooks";
import { post } from "./api";
import { Boundary, Failed } from "./boundary";
import { ModelPicker, useModel } from "./chat";
import { useLoaded } from "./hooks";
import { Shown, plural, toJson, visible } from "./text";
import { Transcript } from "./transcript";
import type { RunDetail, RunEntry, State } from "./types";
import { useRun } from "./useRun";
import { Waterfall } from "./waterfall";

export function RunsScreen({ state, chosen }: { state: State; chosen: string }) {
  const { data, error, reload } = useLoaded<{ journal: string | null; runs: RunEntry[] }>("runs");
  if (error)
    return (
      <p class="error empty" role="alert">
        <Shown text={error} />
      </p>
    );
  if (!data)
    return (
      <p class="empty" role="status">
        Loading…
      </p>
    );
  if (data.journal === null)
    return (
      <div class="empty">
        <h2>No journal</h2>
        <p>
          Start the page with a journal to see runs, to resume those that were interrupted, and to approve their calls:{" "}
          <code>toolmason ui {state.target ?? "app.py"} --durable</code>
        </p>
      </div>
    );
  return (
    <div class={`split ${chosen ? "has-choice" : ""}`}>
      <section class="side" aria-label="Runs">
        <div class="filters">
          <p class="muted">
            {plural(data.runs.length, "run")} in <Shown text={data.journal} />
          </p>
          <button type="button" onClick={reload}>
            Refresh
          </button>
        </div>
        {data.runs.length === 0 && <p class="empty">No runs yet. Send a message in the chat, or use `toolmason run --durable`.</p>}
        <ul class="run-list">
          {data.runs.map((run) => (
            <li key={run.run}>
              <a href={`#/runs/${encodeURIComponent(run.run)}`} aria-current={run.run === chosen ? "true" : undefined}>
                <span class="row-head">
                  <span class="row-name">
                    <Shown text={run.asked || run.run} />
                  </span>
                  <span class={`badge run-${run.state}`}>{run.state}</span>
                </span>
                <span class="row-text">
                  {new Date(run.begun * 1000).toLocaleString()} · {plural(run.steps, "step")}
                </span>
              </a>
            </li>
          ))}
        </ul>
      </section>
      <section class="main" aria-label="Run">
        {chosen ? (
          <Boundary key={chosen} fallback={<Failed />}>
            <RunView id={chosen} state={state} onChange={reload} />
          </Boundary>
        ) : (
          <p class="empty">Choose a run to see its steps.</p>
        )}
      </section>
    </div>
  );
}

function RunView({ id, state, onChange }: { id: string; state: State; onChange: () => void }) {
  const [model, setModel] = useModel(state);
  const { data, error, reload } = useLoaded<RunDetail>(`runs/${encodeURIComponent(id)}`);
  const [problem, setProblem] = useState("");
  const followed = useRun(`resumed?model=${encodeURIComponent(model)}`);
  const refresh = () => {
    reload();
    onChange();
  };
  const wasBusy = useRef(false);
  // The journal has changed when the run stops, also after an answer.
  useEffect(() => {
    if (wasBusy.current && !followed.isBusy) refresh();
    wasBusy.current = followed.isBusy;
  }, [followed.isBusy]);
  if (!data)
    return (
      <p class={error ? "error empty" : "empty"} role="status">
        <Shown text={error || "Loading…"} />
      </p>
    );
  const resume = () => void followed.send({ resume: id });
  const reconcile = async (key: string, text: string | null) => {
    setProblem("");
    try {
      await post(`runs/${encodeURIComponent(id)}/reconcile`, text === null ? { key } : { key, done: text });
      refresh();
    } catch (failure) {
      setProblem((failure as Error).message);
    }
  };
  const isResumable = data.state === "interrupted" || data.state === "pending";
  return (
    <article class="tool">
      <a class="back" href="#/runs">
        ← All runs
      </a>
      <header>
        <h2>
          <Shown text={data.asked || id} />
        </h2>
        <span class={`badge run-${data.state}`}>{data.state}</span>
        <p class="muted">
          {new Date(data.begun * 1000).toLocaleString()} · <code>{visible(id)}</code>
        </p>
      </header>
      {data.effects
        .filter((effect) => data.interrupted.includes(effect.key))
        .map((effect) => (
          <Interrupted key={effect.key} effect={effect} onAnswer={(text) => void reconcile(effect.key, text)} />
        ))}
      {isResumable && (
        <div class="resume">
          <p>
            {data.state === "pending"
              ? "The run waits for approval. Resume it to see the call and to answer."
              : "The run was interrupted. Completed steps are not repeated."}
          </p>
          <div class="buttons">
            <ModelPicker state={state} model={model} onChoose={setModel} />
            <button type="button" class="primary" disabled={followed.isBusy} onClick={resume}>
              {data.state === "pending" ? "Continue to the approval" : "Resume"}
            </button>
          </div>
        </div>
      )}
      {(problem || followed.run.state === "failed") && (
        <p class="error" role="alert">
          <Shown text={problem || "The run failed."} />
        </p>
      )}
      {followed.run.items.length > 0 && (
        <Transcript
          items={followed.run.items}
          answered={followed.answered}
          onAnswer={followed.answer}
        />
      )}
      {data.text && (
        <section aria-label="Answer">
          <h3>Answer</h3>
          <p>
            <Shown text={data.text} />
          </p>
        </section>
      )}
      <h3>Steps</h3>
      <Waterfall spans={data.spans} label="Steps of the run" />
      <details>
        <summary>Calls ({data.effects.filter((effect) => effect.kind === "tool").length})</summary>
        <ul>
          {data.effects
            .filter((effect) => effect.kind === "tool")
            .map((effect) => (
              <li key={effect.key}>
                <code>{visible(effect.key)}</code> <Shown text={effect.name} /> <Shown text={JSON.stringify(effect.arguments)} /> ({effect.state})
              </li>
            ))}
        </ul>
      </details>
    </article>
  );
}

function Interrupted({ effect, onAnswer }: { effect: RunDetail["effects"][number]; onAnswer: (text: string | null) => void }) {
  const [text, setText] = useState("");
  return (
    <section class="approval" aria-label={`Interrupted call of ${visible(effect.name)}`}>
      <p>
        The call of{" "}
        <b>
          <Shown text={effect.name} />
        </b>{" "}
        was interrupted, and its outcome is unknown. Say what happened before you resume the run, or the model is told that it is unknown.
      </p>
      <pre class="arguments">
        <Shown text={toJson(effect.arguments)} />
      </pre>
      <div class="buttons">
        <button type="button" onClick={() => onAnswer(null)}>
          It did not run: repeat it
        </button>
        <label class="inline">
          <span>Result</span>
          <input type="text" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <button type="button" onClick={() => onAnswer(text)}>
          It ran, with this result
        </button>
      </div>
    </section>
  );
}
