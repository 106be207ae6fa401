/** Hooks that the screens share. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get } from "./api";

export interface Loaded<T> {
  data: T | null;
  error: string;
  reload: () => void;
}

/** Fetch a path, again when it or `version` changes. The data from before stays until the new data is there. */
export function useLoaded<T>(path: string | null, version: unknown = 0): Loaded<T> {
  const [data, setData] = useState<{ path: string; value: T } | null>(null);
  const [error, setError] = useState("");
  const [count, setCount] = useState(0);
  useEffect(() => {
    if (path === null) return;
    let isCurrent = true;
    get<T>(path).then(
      (value) => {
        if (!isCurrent) return;
        setData({ path, value });
        setError("");
      },
      (problem: Error) => isCurrent && setError(problem.message),
    );
    return () => {
      isCurrent = false;
    };
  }, [path, version, count]);
  const reload = useCallback(() => setCount((each) => each + 1), []);
  return { data: data?.path === path ? (data?.value ?? null) : null, error, reload };
}

/** Return a part of an address, as it is if a percent sign in it begins no character. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The part of the address after `#/`, split at slashes. */
export function useRoute(): string[] {
  const read = () => location.hash.replace(/^#\/?/, "").split("/").map(decode);
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const onChange = () => setRoute(read());
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return route;
}

export function go(...parts: string[]): void {
  location.hash = `/${parts.map(encodeURIComponent).join("/")}`;
}

/** Run a function some time after the last change of a value. */
export function useDebounced(work: () => void, delay: number, ...values: unknown[]): void {
  const latest = useRef(work);
  latest.current = work;
  useEffect(() => {
    const timer = setTimeout(() => latest.current(), delay);
    return () => clearTimeout(timer);
  }, values);
}

/** State that stays in this tab. */
export function useStored<T>(key: string, initial: T): [T, (value: T) => void] {
  const [value, setValue] = useState<T>(() => {
    try {
      const text = sessionStorage.getItem(key);
      return text === null ? initial : (JSON.parse(text) as T);
    } catch {
      return initial;
    }
  });
  const store = useCallback(
    (next: T) => {
      setValue(next);
      try {
        sessionStorage.setItem(key, JSON.stringify(next));
      } catch {
        // The storage is full: the value lasts until the page is closed.
      }
    },
    [key],
  );
  return [value, store];
}
