/** The frame of the page: navigation, the state of the connection, and the chosen screen. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, stream } from "./api";
import { Boundary, Failed } from "./boundary";
import { ChatScreen } from "./chat";
import { useLoaded, useRoute } from "./hooks";
import { RunsScreen } from "./runs";
import { ServersScreen } from "./servers";
import { Shown } from "./text";
import { ToolsScreen } from "./tools";
import type { Change, State, ToolList } from "./types";

const SCREENS = ["tools", "chat", "runs", "servers"] as const;
const THEMES = ["system", "light", "dark"] as const;

/** Follow the changes on the server, and connect again if it was restarted. */
function useChanges(): { version: number; isConnected: boolean; problem: string } {
  const [version, setVersion] = useState(0);
  const [isConnected, setConnected] = useState(true);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const controller = new AbortController();
    const follow = async () => {
      for (let delay = 500; !controller.signal.aborted; delay = Math.min(2 * delay, 8000)) {
        try {
          for await (const change of stream<Change>("events", undefined, controller.signal)) {
            setConnected(true);
            delay = 500;
            if (change.type === "problem") setProblem(change.message ?? "");
            else if (change.type === "hello") setProblem(change.problem ?? "");
            else setProblem("");
            setVersion((each) => each + 1);
          }
        } catch (error) {
          if (controller.signal.aborted) return;
          if (error instanceof ApiError && error.status === 401) return;
        }
        setConnected(false);
        await new Promise((resolve) => setTimeout(resolve, delay));
      }
    };
    void follow();
    return () => controller.abort();
  }, []);
  return { version, isConnected, problem };
}

function useTheme(): [string, () => void] {
  const [theme, setTheme] = useState(() => localStorage.getItem("toolmason-theme") ?? "system");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("toolmason-theme", theme);
  }, [theme]);
  const next = THEMES[(THEMES.indexOf(theme as (typeof THEMES)[number]) + 1) % THEMES.length] ?? "system";
  return [theme, () => setTheme(next)];
}

export function App({ hasToken }: { hasToken: boolean }) {
  return hasToken ? <Page /> : <Refused />;
}

function Refused() {
  return (
    <main class="empty">
      <h1>This page needs its token</h1>
      <p>
        Open the whole address that <code>toolmason ui</code> printed. It ends in <code>#token=…</code>, and is valid until the command
        ends.
      </p>
    </main>
  );
}

function Page() {
  const { version, isConnected, problem } = useChanges();
  const [screen, ...rest] = useRoute();
  const chosen = rest.join("/");
  const { data: state, error } = useLoaded<State>("state", version);
  const { data: list } = useLoaded<ToolList>("tools", version);
  const [theme, nextTheme] = useTheme();
  useEffect(() => {
    document.title = `${screen ? screen[0]?.toUpperCase() + screen.slice(1) : "Tools"} · Toolmason`;
  }, [screen]);
  if (!state || !list)
    return error.includes("token") ? (
      <Refused />
    ) : (
      <main class="empty">
        <p role="status">{error || "Loading…"}</p>
      </main>
    );
  const current = SCREENS.find((each) => each === screen) ?? "tools";
  const screens: Record<(typeof SCREENS)[number], ComponentChildren> = {
    tools: <ToolsScreen list={list} state={state} chosen={current === "tools" ? chosen : ""} version={version} />,
    chat: null, // kept mounted below, so that a run goes on while another screen is open
    runs: <RunsScreen state={state} chosen={chosen} />,
    servers: <ServersScreen state={state} version={version} />,
  };
  return (
    <>
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>
        Skip to the content
      </a>
      <header class="top">
        <h1>
          Toolmason <span class="muted target">{state.target ? <Shown text={state.target} /> : "installed tools"}</span>
        </h1>
        <nav aria-label="Screens">
          {SCREENS.map((each) => (
            <a key={each} href={`#/${each}`} aria-current={each === current ? "page" : undefined}>
              {each[0]?.toUpperCase() + each.slice(1)}
            </a>
          ))}
        </nav>
        <button type="button" class="theme" onClick={nextTheme} title="Change the colours">
          {{ light: "Light", dark: "Dark" }[theme] ?? "Auto"} <span class="sr-only">colours, change</span>
        </button>
      </header>
      {!isConnected && (
        <p class="banner error" role="alert">
          The server of the page does not answer. Start it again with <code>toolmason ui</code>; a new start has a new address.
        </p>
      )}
      {problem && (
        <p class="banner warning" role="alert">
          Not reloaded; the tools from before are still in use. <Shown text={problem} />
        </p>
      )}
      <main id="content" tabIndex={-1}>
        <div class="screen" hidden={current !== "chat"}>
          <Boundary fallback={<Failed />}>
            <ChatScreen state={state} />
          </Boundary>
        </div>
        {current !== "chat" && (
          <div class="screen">
            <Boundary key={current} fallback={<Failed />}>
              {screens[current]}
            </Boundary>
          </div>
        )}
      </main>
    </>
  );
}
