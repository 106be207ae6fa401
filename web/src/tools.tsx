/** The list of tools: search, filters, and the chosen tool beside it. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Boundary, Failed } from "./boundary";
import { go } from "./hooks";
import { ToolView } from "./tool";
import { Shown, plural, visible } from "./text";
import type { State, ToolList, ToolSummary } from "./types";

const ROW = 64;
const EXTRA = 6;

export const EFFECT_NAMES: Record<string, string> = {
  read_only: "read-only",
  destructive: "destructive",
  idempotent: "idempotent",
  open_world: "open world",
};

export interface Filter {
  text: string;
  effect: string;
  source: string;
  tag: string;
}

const NONE: Filter = { text: "", effect: "", source: "", tag: "" };

/** Return the tools that match every word and filter; tools whose name has the first word come first. */
export function filterTools(tools: ToolSummary[], filter: Filter): ToolSummary[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = tools.filter((tool) => {
    if (filter.effect === "none" ? tool.effects.length : filter.effect && !tool.effects.includes(filter.effect)) return false;
    if (filter.source && (tool.source || "own") !== filter.source) return false;
    if (filter.tag && !tool.tags.includes(filter.tag)) return false;
    const text = `${tool.name} ${tool.title ?? ""} ${tool.description}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const [first] = words;
  if (!first) return found;
  return found.sort((a, b) => Number(b.name.toLowerCase().includes(first)) - Number(a.name.toLowerCase().includes(first)));
}

export function ToolsScreen({ list, state, chosen, version }: { list: ToolList; state: State; chosen: string; version: number }) {
  const [filter, setFilter] = useState<Filter>(NONE);
  const search = useRef<HTMLInputElement>(null);
  const found = useMemo(() => filterTools(list.tools, filter), [list, filter]);
  const tags = useMemo(() => [...new Set(list.tools.flatMap((tool) => tool.tags))].sort(), [list]);
  const sources = useMemo(() => [...new Set(list.tools.map((tool) => tool.source || "own"))].sort(), [list]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.key === "/" && !/^(input|textarea|select)$/i.test(target.tagName)) {
        event.preventDefault();
        search.current?.focus();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const set = (change: Partial<Filter>) => setFilter({ ...filter, ...change });
  const total = list.tools.reduce((sum, tool) => sum + tool.tokens, 0);
  return (
    <div class={`split ${chosen ? "has-choice" : ""}`}>
      <section class="side" aria-label="Tools">
        <div class="filters">
          <label class="search">
            <span>Search</span>
            <input
              ref={search}
              type="search"
              placeholder="Name or description ( / )"
              value={filter.text}
              onInput={(event) => set({ text: event.currentTarget.value })}
              onKeyDown={(event) => {
                if (event.key === "Enter" && found[0]) go("tools", found[0].name);
                if (event.key === "ArrowDown") document.getElementById("tool-list")?.focus();
              }}
            />
          </label>
          <div class="filter-row">
            <Choice label="Effect" value={filter.effect} onChange={(effect) => set({ effect })}>
              {[...Object.entries(EFFECT_NAMES), ["none", "none declared"]]}
            </Choice>
            {sources.length > 1 && (
              <Choice label="Source" value={filter.source} onChange={(source) => set({ source })}>
                {sources.map((each) => [each, each === "own" ? "this program" : visible(each)])}
              </Choice>
            )}
            {tags.length > 0 && (
              <Choice label="Tag" value={filter.tag} onChange={(tag) => set({ tag })}>
                {tags.map((each) => [each, visible(each)])}
              </Choice>
            )}
          </div>
          <p class="muted" role="status">
            {found.length === list.tools.length
              ? `${plural(found.length, "tool")}, about ${plural(total, "token")}`
              : `${found.length} of ${plural(list.tools.length, "tool")}`}
          </p>
        </div>
        {list.tools.length === 0 ? (
          <NoTools state={state} list={list} />
        ) : found.length === 0 ? (
          <p class="empty">
            No tool matches.{" "}
            <button type="button" onClick={() => setFilter(NONE)}>
              Show all
            </button>
          </p>
        ) : (
          <ToolRows tools={found} chosen={chosen} />
        )}
        <HeldBack list={list} />
      </section>
      <section class="main" aria-label="Tool">
        {chosen ? (
          <Boundary key={chosen} fallback={<Failed />}>
            <ToolView name={chosen} state={state} version={version} />
          </Boundary>
        ) : (
          <p class="empty">Choose a tool to see its schema, to run it, and to copy the call as code.</p>
        )}
      </section>
    </div>
  );
}

function NoTools({ state, list }: { state: State; list: ToolList }) {
  return (
    <div class="empty">
      <p>
        {state.target === null ? "No plugin offers tools." : "The target has no tools."} Decorate a function with <code>@tool</code>, then
        start the page with its file: <code>toolmason ui app.py</code>.
      </p>
      {list.problems.map((problem) => (
        <p key={problem} class="error">
          <Shown text={problem} />
        </p>
      ))}
    </div>
  );
}

function HeldBack({ list }: { list: ToolList }) {
  const names = Object.entries(list.held_back).filter(([name]) => !name.includes("__"));
  if (!names.length) return null;
  return (
    <details class="held-back">
      <summary>{plural(names.length, "tool")} held back</summary>
      <ul>
        {names.map(([name, reason]) => (
          <li key={name}>
            <b>
              <Shown text={name} />
            </b>
            : <Shown text={reason} /> <a href="#/servers">Review</a>
          </li>
        ))}
      </ul>
    </details>
  );
}

function Choice(props: { label: string; value: string; onChange: (value: string) => void; children: string[][] }) {
  return (
    <label class="choice">
      <span>{props.label}</span>
      <select value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        <option value="">all</option>
        {props.children.map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Rows of equal height, of which only those in view are in the document. */
function ToolRows({ tools, chosen }: { tools: ToolSummary[]; chosen: string }) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  // By name: a list that is loaded again keeps the active row. A second key may come before the first is drawn.
  const [activeName, setActiveName] = useState(chosen);
  const latestName = useRef(chosen);
  const find = (name: string) => Math.max(0, tools.findIndex((tool) => tool.name === name));
  const active = find(activeName);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, []);
  const move = (index: number) => {
    const next = Math.min(tools.length - 1, Math.max(0, index));
    latestName.current = tools[next]?.name ?? "";
    setActiveName(latestName.current);
    const element = box.current;
    if (!element) return;
    if (next * ROW < element.scrollTop) element.scrollTop = next * ROW;
    else if ((next + 1) * ROW > element.scrollTop + element.clientHeight) element.scrollTop = (next + 1) * ROW - element.clientHeight;
  };
  const isListed = tools.some((tool) => tool.name === chosen);
  useLayoutEffect(() => {
    if (isListed) move(find(chosen));
  }, [chosen, isListed]);
  const onKeyDown = (event: KeyboardEvent) => {
    const active = find(latestName.current);
    const steps: Record<string, number> = { ArrowDown: active + 1, ArrowUp: active - 1, Home: 0, End: tools.length - 1, PageDown: active + 8, PageUp: active - 8 };
    const next = steps[event.key];
    if (next !== undefined) {
      event.preventDefault();
      move(next);
    } else if ((event.key === "Enter" || event.key === " ") && tools[active]) {
      event.preventDefault();
      go("tools", tools[active].name);
    }
  };
  const first = Math.max(0, Math.floor(view.top / ROW) - EXTRA);
  const last = Math.min(tools.length, Math.ceil((view.top + view.height) / ROW) + EXTRA);
  const isInView = active >= first && active < last;
  return (
    <div
      id="tool-list"
      ref={box}
      class="rows"
      role="listbox"
      tabIndex={0}
      aria-label="Tools"
      aria-activedescendant={isInView ? `tool-${active}` : undefined}
      onKeyDown={onKeyDown}
    >
      <div role="presentation" style={{ height: `${tools.length * ROW}px`, position: "relative" }}>
        {tools.slice(first, last).map((tool, offset) => {
          const index = first + offset;
          return (
            <div
              key={tool.name}
              id={`tool-${index}`}
              role="option"
              aria-selected={tool.name === chosen}
              aria-setsize={tools.length}
              aria-posinset={index + 1}
              class={`row ${index === active ? "active" : ""}`}
              style={{ top: `${index * ROW}px`, height: `${ROW}px` }}
              onClick={() => go("tools", tool.name)}
            >
              <span class="row-head">
                <span class="row-name">
                  <Shown text={tool.name} />
                </span>
                <Badges tool={tool} />
              </span>
              <span class="row-text">
                <Shown text={tool.description.split("\n")[0] ?? ""} />
              </span>
            </div>
          );
        })}
      </div>
    </div>
  );
}

export function Badges({ tool }: { tool: ToolSummary }) {
  if (!tool.effects.length && !tool.source) return null;
  return (
    <span class="badges">
      {tool.effects.map((effect) => (
        <span key={effect} class={`badge effect-${effect}`}>
          {EFFECT_NAMES[effect] ?? effect}
        </span>
      ))}
      {tool.source && (
        <span class="badge source">
          <Shown text={tool.source} />
        </span>
      )}
    </span>
  );
}
