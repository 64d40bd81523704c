// Server-sent events: read with fetch, so that a stream can be a POST, can start at an id, and tells why it ended.
import { createParser, type EventSourceMessage } from "eventsource-parser";
import { useEffect, useRef } from "react";
import { ApiError, problem } from "./client";
import { session } from "./session";

export type Message = { id?: string; data: unknown };

/** Every event of one response, as parsed JSON; ends when the response does. `onOpen` runs once it has begun. */
export async function* events(
  path: string,
  init: RequestInit = {},
  onOpen: () => void = () => undefined,
): AsyncGenerator<Message> {
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers: { Accept: "text/event-stream", ...init.headers } });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer.");
  }
  if (!response.ok || !response.body) {
    const body = await response.json().catch(() => null);
    throw new ApiError(response.status, problem(body, response.status));
  }
  onOpen();
  const waiting: EventSourceMessage[] = [];
  const parser = createParser({ onEvent: (event) => waiting.push(event) });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      parser.feed(value);
      for (const event of waiting.splice(0)) yield { id: event.id, data: JSON.parse(event.data) };
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;

/**
 * Follow a stream for as long as the component lives. It resumes after the last id it saw, waits longer after each
 * failure, and tells the session so that the "reconnecting" banner shows. `onOpen` runs at each (re)connection.
 */
export function useStream(
  path: string | null,
  onEvent: (data: unknown) => void,
  onOpen?: (again: boolean) => void,
): void {
  const handlers = useRef({ onEvent, onOpen });
  handlers.current = { onEvent, onOpen };
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    follow(path, stop.signal, handlers).catch(() => undefined);
    return () => stop.abort();
  }, [path]);
}

type Handlers = { current: { onEvent: (data: unknown) => void; onOpen?: (again: boolean) => void } };

async function follow(path: string, signal: AbortSignal, handlers: Handlers): Promise<void> {
  let last: string | undefined;
  let wait = FIRST_WAIT;
  let opened = false;
  while (!signal.aborted) {
    try {
      const headers: HeadersInit = last ? { "Last-Event-ID": last } : {};
      const isOpen = () => {
        session.found();
        handlers.current.onOpen?.(opened);
        opened = true;
      };
      for await (const message of events(path, { headers, signal }, isOpen)) {
        wait = FIRST_WAIT;
        last = message.id ?? last;
        handlers.current.onEvent(message.data);
        if (ended(message.data)) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status === 401) return session.end();
      if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) return;
      session.lost();
    }
    await pause(wait, signal);
    wait = Math.min(wait * 1.7, LONGEST_WAIT);
  }
}

function ended(data: unknown): boolean {
  return typeof data === "object" && data !== null && "type" in data && data.type === "end";
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds * (0.8 + Math.random() * 0.4));
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
