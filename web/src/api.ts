/** Talk to the server of the page. The token is in the fragment of the address, which no server sees. */

const KEY = "toolmason-token";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const TOKEN = /^#token=([\w-]+)$/;

/** Move the token from the address to the storage of this tab, so that it is in no bookmark. */
export function takeToken(): string {
  const found = TOKEN.exec(location.hash);
  if (found?.[1]) {
    sessionStorage.setItem(KEY, found[1]);
    history.replaceState(null, "", "#/tools");
  }
  return sessionStorage.getItem(KEY) ?? "";
}

/** Start again if the address of a new start is opened in this tab, which loads nothing by itself. */
export function watchToken(): void {
  addEventListener("hashchange", () => TOKEN.test(location.hash) && location.reload());
}

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(`/api/${path}`, {
      ...init,
      headers: { "content-type": "application/json", authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` },
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The server of the page does not answer. Start it again with `toolmason ui`.");
  }
  if (!response.ok) {
    const body = (await response.json().catch(() => null)) as { error?: { message?: string } } | null;
    throw new ApiError(response.status, body?.error?.message ?? `The server answered ${response.status}.`);
  }
  return response;
}

export async function get<T>(path: string): Promise<T> {
  return (await (await request(path)).json()) as T;
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  return (await (await request(path, { method: "POST", body: JSON.stringify(body) })).json()) as T;
}

export async function remove(path: string): Promise<void> {
  await request(path, { method: "DELETE" });
}

/** Yield the events of a stream. Aborting the signal ends it, and cancels a call on the server. */
export async function* stream<T>(path: string, body?: unknown, signal?: AbortSignal): AsyncGenerator<T> {
  const init = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const response = await request(path, { ...init, signal });
  if (response.body) yield* parseEvents<T>(response.body);
}

/** Parse server-sent events; each has JSON data. */
export async function* parseEvents<T>(body: ReadableStream<Uint8Array>): AsyncGenerator<T> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  // The parts of an unfinished event: joining them once keeps a result of megabytes linear.
  let parts: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const text = decoder.decode(value, { stream: true });
      // An end may be split between two parts.
      const joint = (parts.at(-1) ?? "").slice(-1) + text;
      parts.push(text);
      if (!joint.includes("\n\n")) continue;
      const blocks = parts.join("").split("\n\n");
      parts = [blocks.pop() ?? ""];
      for (const block of blocks) {
        const data = block
          .split("\n")
          .filter((line) => line.startsWith("data: "))
          .map((line) => line.slice(6));
        if (data.length) yield JSON.parse(data.join("\n")) as T;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
