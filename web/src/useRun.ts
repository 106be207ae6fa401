/** Follow a run: send a request, reduce its events once a frame, answer its requests for approval, cancel it. */
import { useCallback, useRef, useState } from "preact/hooks";
import { ApiError, remove, stream } from "./api";
import { EMPTY, ask, pendingRequests, reduce, type Run } from "./chatState";
import type { Answer, ChatEvent } from "./types";

export interface FollowedRun {
  run: Run;
  answered: Record<string, Answer>;
  isBusy: boolean;
  send: (body: unknown, prompt?: string) => Promise<void>;
  answer: (request: string, answer: Answer) => void;
  cancel: () => void;
  restore: (run: Run) => void;
}

/** `path` is that of the SSE application of the chosen model. */
export function useRun(path: string): FollowedRun {
  const [run, setRun] = useState<Run>(EMPTY);
  const [answered, setAnswered] = useState<Record<string, Answer>>({});
  const [isBusy, setBusy] = useState(false);
  const latest = useRef(run);
  // Answers go to the model that asked, also if another one was chosen since.
  const origin = useRef(path);

  const apply = useCallback((next: Run) => {
    latest.current = next;
    setRun(next);
  }, []);

  const follow = useCallback(
    async (body: unknown) => {
      let waiting: [ChatEvent, number][] = [];
      let frame = 0;
      const flush = () => {
        frame = 0;
        const events = waiting;
        waiting = [];
        apply(events.reduce((state, [event, time]) => reduce(state, event, time), latest.current));
      };
      setBusy(true);
      try {
        for await (const event of stream<ChatEvent>(origin.current, body)) {
          waiting.push([event, performance.now()]);
          // A hidden tab draws no frames, so that a timer takes their place.
          frame ||= window.setTimeout(flush, 16);
        }
      } catch (error) {
        const message = error instanceof ApiError ? error.message : String(error);
        waiting.push([{ type: "Failed", error: { code: "connection", message } }, performance.now()]);
      } finally {
        clearTimeout(frame);
        flush();
        setBusy(false);
      }
    },
    [apply],
  );

  const send = useCallback(
    async (body: unknown, prompt?: string) => {
      origin.current = path;
      apply(prompt === undefined ? { ...EMPTY, state: "running" } : ask(latest.current, prompt));
      setAnswered({});
      await follow(body);
    },
    [apply, follow, path],
  );

  const answer = useCallback(
    (request: string, value: Answer) => {
      setAnswered((before) => {
        const answers = { ...before, [request]: value };
        const open = pendingRequests(latest.current.items).filter((each) => !(each.id in answers));
        if (open.length) return answers;
        // Outside of the update, which may run twice.
        queueMicrotask(() => void follow({ run: latest.current.reply?.run, answers }));
        return {};
      });
    },
    [follow],
  );

  const cancel = useCallback(() => {
    const { id } = latest.current;
    if (id) void remove(`${origin.current}&run=${encodeURIComponent(id)}`).catch(() => undefined);
  }, []);

  return { run, answered, isBusy, send, answer, cancel, restore: apply };
}
