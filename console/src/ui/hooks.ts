import { useRouter, useRouterState } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";

/** The time, renewed every `every` milliseconds. */
export function useNow(every = 1000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

export type Search = {
  /** Every value of the address. */
  values: Readonly<Record<string, string>>;
  get: (name: string, fallback?: string) => string;
  /** Change some; null or "" removes one. `push` makes a step of the Back button. */
  set: (change: Record<string, string | number | boolean | null | undefined>, options?: { push?: boolean }) => void;
};

/** What the address holds after `?`: filters live there, so that a link shows what its sender saw. */
export function useSearch(): Search {
  const text = useRouterState({ select: (state) => state.location.searchStr });
  const { history } = useRouter();
  const values = useMemo(() => Object.fromEntries(new URLSearchParams(text)), [text]);
  const set = useCallback<Search["set"]>(
    (change, options) => {
      const here = new URL(history.location.href, "http://here");
      for (const [name, value] of Object.entries(change)) {
        if (value === null || value === undefined || value === "" || value === false) here.searchParams.delete(name);
        else here.searchParams.set(name, String(value));
      }
      const href = here.pathname + here.search + here.hash;
      if (options?.push) history.push(href);
      else history.replace(href);
    },
    [history],
  );
  return useMemo(() => ({ values, get: (name, fallback = "") => values[name] ?? fallback, set }), [values, set]);
}

/** Go to an address of the console. */
export function useGo(): (href: string, options?: { replace?: boolean }) => void {
  const { history } = useRouter();
  return useCallback((href, options) => (options?.replace ? history.replace(href) : history.push(href)), [history]);
}

export type Keys = Record<string, (event: KeyboardEvent) => void>;

/** Plain keys ("j", "/", "Escape") while the component lives; never while somebody types. "g r" is a sequence. */
export function useKeys(keys: Keys): void {
  const current = useRef(keys);
  current.current = keys;
  useEffect(() => {
    let before = "";
    let at = 0;
    const listen = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyping(event.target)) return;
      if (document.querySelector("dialog[open]") || (event.key === "Enter" && isPressed(event.target))) return;
      const sequence = Date.now() - at < 800 ? `${before} ${event.key}` : "";
      const action = current.current[sequence] ?? current.current[event.key];
      before = event.key;
      at = Date.now();
      if (action) {
        event.preventDefault();
        action(event);
      }
    };
    window.addEventListener("keydown", listen);
    return () => window.removeEventListener("keydown", listen);
  }, []);
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

/** Whether Enter does something of its own there. */
function isPressed(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("button, a[href], summary") !== null;
}

/** State kept in this browser. */
export function useStored<T>(name: string, initial: T): [T, (value: T) => void] {
  const key = `benchmax.${name}`;
  const [value, setValue] = useState<T>(() => {
    try {
      const text = localStorage.getItem(key);
      return text === null ? initial : (JSON.parse(text) as T);
    } catch {
      return initial;
    }
  });
  const store = useCallback(
    (next: T) => {
      setValue(next);
      try {
        localStorage.setItem(key, JSON.stringify(next));
      } catch {
        // Private windows keep nothing: the choice lasts as long as the page.
      }
    },
    [key],
  );
  return [value, store];
}

/** `value`, once it has rested for a moment. */
export function useSettled<T>(value: T, milliseconds = 200): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return settled;
}

/** Whether the window is as narrow as a phone's. */
export function useNarrow(width = 760): boolean {
  const [narrow, setNarrow] = useState(() => window.innerWidth < width);
  useEffect(() => {
    const query = window.matchMedia(`(max-width: ${width - 1}px)`);
    const listen = () => setNarrow(query.matches);
    listen();
    query.addEventListener("change", listen);
    return () => query.removeEventListener("change", listen);
  }, [width]);
  return narrow;
}
