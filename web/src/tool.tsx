/** One tool: run it, see its schema and how providers take it, copy a call as code. */
import { useState } from "preact/hooks";
import { useLoaded, useStored } from "./hooks";
import { RunPanel } from "./run";
import { asCommand, asCurl, asMcp, asPython } from "./snippets";
import { Tabs } from "./tabs";
import { Shown, plural } from "./text";
import { Badges } from "./tools";
import type { Arguments, State, ToolDetail, Verdict } from "./types";
import { CopyButton, JsonTree } from "./values";

const TABS = ["Run", "Schema", "Providers", "Copy"] as const;

export function ToolView({ name, state, version }: { name: string; state: State; version: number }) {
  const { data: tool, error } = useLoaded<ToolDetail>(`tools/${encodeURIComponent(name)}`, version);
  const [tab, setTab] = useState<(typeof TABS)[number]>("Run");
  const [args, setArguments] = useStored<Arguments>(`toolmason-arguments ${name}`, {});
  if (!tool)
    return error ? (
      <div class="empty">
        <p class="error" role="alert">
          <Shown text={error} />
        </p>
        <a href="#/tools">Back to the tools</a>
      </div>
    ) : (
      <p class="empty" role="status">
        Loading…
      </p>
    );
  return (
    <article class="tool">
      <a class="back" href="#/tools">
        ← All tools
      </a>
      <header>
        <h2>
          <Shown text={tool.name} />
        </h2>
        <Badges tool={tool} />
        <p class="description">
          <Shown text={tool.description || "No description."} />
        </p>
        <p class="muted">
          About {plural(tool.tokens, "token")} ·{" "}
          <code>
            <Shown text={tool.origin} />
          </code>
        </p>
      </header>
      <Tabs label="Views of the tool" names={TABS} chosen={tab} onChoose={setTab}>
        {tab === "Run" && <RunPanel tool={tool} args={args} onArguments={setArguments} />}
        {tab === "Schema" && <Schemas tool={tool} />}
        {tab === "Providers" && <Providers verdicts={tool.providers} />}
        {tab === "Copy" && <Snippets tool={tool.name} args={args} target={state.target} />}
      </Tabs>
    </article>
  );
}

function Schemas({ tool }: { tool: ToolDetail }) {
  return (
    <>
      <h3>Input</h3>
      <JsonTree value={tool.input_schema} />
      <CopyButton text={JSON.stringify(tool.input_schema, null, 2)} label="Copy the input schema" />
      <h3>Output</h3>
      {tool.output_schema ? <JsonTree value={tool.output_schema} /> : <p class="muted">The tool declares no output schema.</p>}
    </>
  );
}

function Providers({ verdicts }: { verdicts: Verdict[] }) {
  return (
    <table>
      <caption class="muted">How each provider takes the definition, as `toolmason check` reports it.</caption>
      <thead>
        <tr>
          <th scope="col">Provider</th>
          <th scope="col">Definition</th>
          <th scope="col">Strict mode</th>
          <th scope="col">Notes</th>
        </tr>
      </thead>
      <tbody>
        {verdicts.map((verdict) => (
          <tr key={verdict.provider}>
            <th scope="row">{verdict.provider}</th>
            <td>
              <span class={`badge status-${verdict.status}`}>{verdict.status}</span>
            </td>
            <td>{verdict.strict ? "yes" : "no"}</td>
            <td>
              <Shown
                text={[...verdict.reasons, verdict.not_strict, verdict.alias ? `sent as ${verdict.alias}` : "", ...verdict.keys].filter(Boolean).join("; ") || "–"}
              />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const KINDS = ["Python", "Command line", "curl", "MCP JSON"] as const;

function Snippets({ tool, args, target }: { tool: string; args: Arguments; target: string | null }) {
  const [kind, setKind] = useState<(typeof KINDS)[number]>("Python");
  const text = {
    Python: asPython(target, tool, args),
    "Command line": asCommand(target, tool, args),
    curl: asCurl(target, tool, args),
    "MCP JSON": asMcp(tool, args),
  }[kind];
  return (
    <Tabs label="Kinds of code" names={KINDS} chosen={kind} onChoose={setKind}>
      <pre class="code" tabIndex={0} aria-label={`The call as ${kind}`}>
        <Shown text={text} />
      </pre>
      <CopyButton text={text} />
      <p class="muted">With the arguments of the form.</p>
    </Tabs>
  );
}
