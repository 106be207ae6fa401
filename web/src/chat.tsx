/** The chat: choose a model, send messages, watch its calls, approve them, save and share the conversation. */
import { useEffect, useRef, useState } from "preact/hooks";
import { get, post } from "./api";
import { EMPTY, readItems, type Item } from "./chatState";
import { useStored } from "./hooks";
import { makePage } from "./share";
import { Shown, visible } from "./text";
import { Facts, Transcript, useStickyEnd } from "./transcript";
import type { Json, State } from "./types";
import { useRun } from "./useRun";
import { download } from "./values";

interface SavedChat {
  format: "toolmason-page-chat";
  version: 1;
  model: string;
  messages: Json[];
  items: Item[];
}

export function ModelPicker({ state, model, onChoose }: { state: State; model: string; onChoose: (name: string) => void }) {
  return (
    <label class="choice">
      <span>Model</span>
      <select value={model} onChange={(event) => onChoose(event.currentTarget.value)}>
        {state.models.map(({ name, note }) => (
          <option key={name} value={name}>
            {visible(`${name} (${note})`)}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Return the stored choice, or the first model if that is not offered. */
export function useModel(state: State): [string, (name: string) => void] {
  const [stored, setStored] = useStored("toolmason-model", "");
  const known = state.models.some((model) => model.name === stored);
  return [known ? stored : (state.models[0]?.name ?? ""), setStored];
}

export function ChatScreen({ state }: { state: State }) {
  const [model, setModel] = useModel(state);
  const [conversation, setConversation] = useState(() => crypto.randomUUID());
  const [prompt, setPrompt] = useState("");
  const [problem, setProblem] = useState("");
  const file = useRef<HTMLInputElement>(null);
  const input = useRef<HTMLTextAreaElement>(null);
  const { run, answered, isBusy, send, answer, cancel, restore } = useRun(`chat?model=${encodeURIComponent(model)}`);
  const { box, onScroll } = useStickyEnd(run);
  const isWaiting = run.state === "waiting";

  // A call that waits takes the keyboard from here. It comes back when the question is gone.
  const mayReturn = useRef(true);
  useEffect(() => {
    if (isWaiting) mayReturn.current = true;
    else if (mayReturn.current && document.activeElement === document.body) {
      mayReturn.current = false;
      input.current?.focus();
    }
  }, [run, isWaiting]);

  const submit = () => {
    const text = prompt.trim();
    if (!text || isBusy) return;
    setPrompt("");
    setProblem("");
    void send({ prompt: text, conversation }, text);
  };
  const save = async () => {
    try {
      const { messages } = await get<{ messages: Json[] }>(`conversations/${conversation}?model=${encodeURIComponent(model)}`);
      const saved: SavedChat = { format: "toolmason-page-chat", version: 1, model, messages, items: run.items };
      download("chat.json", JSON.stringify(saved, null, 1), "application/json");
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const load = async (chosen: File | undefined) => {
    if (!chosen) return;
    try {
      const saved = JSON.parse(await chosen.text()) as Partial<SavedChat>;
      if (saved.format !== "toolmason-page-chat" || !Array.isArray(saved.items) || !Array.isArray(saved.messages))
        throw new Error("This file is not a chat that the page saved. Choose another one.");
      const next = crypto.randomUUID();
      await post(`conversations/${next}/load`, { messages: saved.messages });
      setConversation(next);
      restore({ ...EMPTY, items: readItems(saved.items), state: "done" });
      setProblem("");
    } catch (error) {
      setProblem(error instanceof SyntaxError ? "This file is not JSON. Choose a chat that the page saved." : (error as Error).message);
    }
  };
  const reset = () => {
    setConversation(crypto.randomUUID());
    restore(EMPTY);
    setProblem("");
    input.current?.focus();
  };
  return (
    <div class="chat">
      <div class="toolbar">
        <h2 class="sr-only">Chat</h2>
        <ModelPicker state={state} model={model} onChoose={setModel} />
        <span class="spacer" />
        <button type="button" disabled={!run.items.length || isBusy} onClick={reset}>
          New chat
        </button>
        <button type="button" disabled={!run.items.length || isBusy} onClick={() => void save()}>
          Save
        </button>
        <button type="button" disabled={isBusy} onClick={() => file.current?.click()}>
          Load
        </button>
        <input ref={file} type="file" accept="application/json,.json" class="sr-only" tabIndex={-1} aria-label="Chat to load" onChange={(event) => void load(event.currentTarget.files?.[0])} />
        <button type="button" disabled={!run.items.length || isBusy} onClick={() => download("chat.html", makePage(document, run, state), "text/html")}>
          Share as HTML
        </button>
      </div>
      {problem && (
        <p class="error" role="alert">
          <Shown text={problem} />
        </p>
      )}
      <div class="chat-log" ref={box} onScroll={onScroll} tabIndex={0} role="log" aria-label="Conversation" aria-busy={isBusy}>
        {run.items.length === 0 ? (
          <div class="empty">
            <p>Ask for something that your tools can do. Each call appears as a card, with its arguments, progress and result.</p>
            {model === "offline" && <p class="muted">The offline model only matches words: write a tool’s name and its values in quotes.</p>}
          </div>
        ) : (
          <Transcript items={run.items} onAnswer={answer} answered={answered} />
        )}
        <Facts run={run} state={state} />
      </div>
      <form
        class="composer"
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        <label class="field">
          <span>Message</span>
          <textarea
            ref={input}
            rows={2}
            value={prompt}
            disabled={isWaiting}
            placeholder={isWaiting ? "A call waits for your answer above" : "Enter sends, Shift+Enter starts a line"}
            onInput={(event) => setPrompt(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
                event.preventDefault();
                submit();
              }
              if (event.key === "Escape" && isBusy) cancel();
            }}
          />
        </label>
        {isBusy ? (
          <button type="button" class="danger" onClick={cancel}>
            Stop
          </button>
        ) : (
          <button type="submit" class="primary" disabled={!prompt.trim() || isWaiting}>
            Send
          </button>
        )}
      </form>
    </div>
  );
}
