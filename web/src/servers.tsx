/** The MCP servers of the toolbox: health, lists, and changed definitions to review. */
import { useState } from "preact/hooks";
import { get, post } from "./api";
import { useLoaded } from "./hooks";
import { Shown, formatMilliseconds, plural, visible } from "./text";
import type { Drift, ServerEntry, State } from "./types";
import { Diff } from "./values";

export function ServersScreen({ state, version }: { state: State; version: number }) {
  const { data, error, reload } = useLoaded<{ servers: ServerEntry[] }>("servers", version);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const reconnect = async () => {
    setBusy(true);
    setProblem("");
    try {
      await post("servers/reconnect", {});
    } catch (failure) {
      setProblem((failure as Error).message);
    } finally {
      setBusy(false);
      reload();
    }
  };
  if (!data)
    return (
      <p class={error ? "error empty" : "empty"} role="status">
        <Shown text={error || "Asking the servers…"} />
      </p>
    );
  if (!data.servers.length)
    return (
      <div class="empty">
        <h2>No servers</h2>
        <p>
          The toolbox has no MCP servers. Add one to it with <code>McpServer.stdio(…)</code>, or start the page with a file of servers:{" "}
          <code>toolmason ui mcp.json</code>
        </p>
      </div>
    );
  return (
    <div class="servers">
      <div class="toolbar">
        <h2>Servers</h2>
        <span class="spacer" />
        <button type="button" onClick={reload}>
          Check again
        </button>
        <button type="button" disabled={isBusy} onClick={() => void reconnect()}>
          {isBusy ? "Connecting…" : "Reconnect all"}
        </button>
      </div>
      {(problem || error) && (
        <p class="error" role="alert">
          <Shown text={problem || error} />
        </p>
      )}
      <ul class="server-list">
        {data.servers.map((server) => (
          <li key={server.name}>
            <ServerView server={server} target={state.target} onReconnect={() => void reconnect()} onChange={reload} />
          </li>
        ))}
      </ul>
    </div>
  );
}

function ServerView(props: { server: ServerEntry; target: string | null; onReconnect: () => void; onChange: () => void }) {
  const { server } = props;
  const [drift, setDrift] = useState<Drift | null>(null);
  const [problem, setProblem] = useState("");
  const held = Object.entries(server.held_back);
  const review = () => get<Drift>(`servers/${encodeURIComponent(server.name)}/drift`).then(setDrift, (failure: Error) => setProblem(failure.message));
  const approve = async (digests: Record<string, string>) => {
    setProblem("");
    try {
      await post(`servers/${encodeURIComponent(server.name)}/approve`, { digests });
      setDrift(null);
      props.onChange();
    } catch (failure) {
      setProblem((failure as Error).message);
    }
  };
  return (
    <article class="server" aria-label={`Server ${visible(server.name)}`}>
      <header>
        <h3>
          <Shown text={server.name} />
        </h3>
        <span class={`badge ${server.ok ? "state-done" : "state-failed"}`}>{server.ok ? "up" : server.needs_auth ? "needs sign-in" : "down"}</span>
        <span class="muted">
          {server.kind}
          {server.latency !== null && `, ${formatMilliseconds(server.latency * 1000)}`}
          {server.since !== null && `, since ${new Date(server.since * 1000).toLocaleTimeString()}`}
        </span>
      </header>
      {server.error && (
        <p class="error" role="alert">
          <Shown text={server.error} />
        </p>
      )}
      {!server.error && server.last_error && (
        <p class="muted">
          Last error{server.failed_at !== null && `, at ${new Date(server.failed_at * 1000).toLocaleTimeString()}`}: <Shown text={server.last_error} />
        </p>
      )}
      {server.needs_auth && <SignIn server={server} onReconnect={props.onReconnect} />}
      {!server.ok && !server.needs_auth && (
        <p>
          Start the server again, then{" "}
          <button type="button" onClick={props.onReconnect}>
            reconnect
          </button>
        </p>
      )}
      <Names label="Tools" names={server.tools} prefix="#/tools/" />
      <Names label="Prompts" names={server.prompts} />
      <Names label="Resources" names={server.resources} />
      {held.length > 0 && (
        <div class="warning">
          <p>{plural(held.length, "tool")} held back: the definitions are not the approved ones.</p>
          <ul>
            {held.map(([name, reason]) => (
              <li key={name}>
                <b>
                  <Shown text={name} />
                </b>
                : <Shown text={reason} />
              </li>
            ))}
          </ul>
        </div>
      )}
      <div class="buttons">
        <button type="button" onClick={() => void review()}>
          Compare with the lock file
        </button>
        <span class="muted">{server.is_locked ? "Definitions are in the lock file." : "No definition is in the lock file."}</span>
      </div>
      {problem && (
        <p class="error" role="alert">
          <Shown text={problem} />
        </p>
      )}
      {drift && <DriftView drift={drift} onApprove={() => void approve(drift.digests)} onClose={() => setDrift(null)} />}
    </article>
  );
}

function SignIn({ server, onReconnect }: { server: ServerEntry; onReconnect: () => void }) {
  const [address, setAddress] = useState("");
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const start = async () => {
    setBusy(true);
    setProblem("");
    try {
      const started = await post<{ address: string }>(`servers/${encodeURIComponent(server.name)}/sign-in`, {});
      // Another scheme could run code.
      if (/^https?:\/\//.test(started.address)) setAddress(started.address);
      else onReconnect();
    } catch (failure) {
      setProblem((failure as Error).message);
    } finally {
      setBusy(false);
    }
  };
  return (
    <div class="warning">
      {address ? (
        <p>
          <a href={address} target="_blank" rel="noopener noreferrer">
            Sign in at {new URL(address).host}
          </a>
          , then come back: the tools appear here.
        </p>
      ) : (
        <p>
          This server needs a sign-in.{" "}
          <button type="button" disabled={isBusy} onClick={() => void start()}>
            Sign in
          </button>
        </p>
      )}
      {problem && (
        <p role="alert">
          <Shown text={problem} /> You can also add <code>headers</code> with a token to its configuration, or pass <code>auth=</code> to{" "}
          <code>McpServer.http</code>.
        </p>
      )}
    </div>
  );
}

function Names({ label, names, prefix }: { label: string; names: string[]; prefix?: string }) {
  if (!names.length) return null;
  return (
    <details class="names">
      <summary>
        {label} ({names.length})
      </summary>
      <ul>
        {names.map((name) => (
          <li key={name}>
            {prefix ? (
              <a href={prefix + encodeURIComponent(name)}>
                <Shown text={name} />
              </a>
            ) : (
              <Shown text={name} />
            )}
          </li>
        ))}
      </ul>
    </details>
  );
}

function DriftView({ drift, onApprove, onClose }: { drift: Drift; onApprove: () => void; onClose: () => void }) {
  if (!drift.changes.length)
    return (
      <p class="note" role="status">
        The definitions are those in <Shown text={drift.file} />.{" "}
        <button type="button" onClick={onClose}>
          Close
        </button>
      </p>
    );
  return (
    <section class="drift" aria-label="Changed definitions">
      <h4>
        {plural(drift.changes.length, "difference")} from <Shown text={drift.file} />
      </h4>
      {drift.changes.map((change) => (
        <div key={change.name}>
          <h5>
            <Shown text={change.name} /> <span class="badge">{change.status}</span>
          </h5>
          <Diff before={change.before} after={change.after} label={`Approved and current definition of ${visible(change.name)}`} />
          <details>
            <summary>Both texts</summary>
            <div class="both">
              <pre tabIndex={0} aria-label="Approved definition">
                <Shown text={change.before || "not in the lock file"} />
              </pre>
              <pre tabIndex={0} aria-label="Current definition">
                <Shown text={change.after || "no longer offered"} />
              </pre>
            </div>
          </details>
        </div>
      ))}
      <div class="buttons">
        <button type="button" class="primary" onClick={onApprove}>
          Approve these definitions
        </button>
        <button type="button" onClick={onClose}>
          Not now
        </button>
      </div>
    </section>
  );
}
