// Chats with checkpoints: a session for each, opened by the runner; what the model says comes as it is drawn.
import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import { api, request, type Schemas, unwrap } from "./client";
import { events } from "./stream";

export type SessionInfo = Schemas["SessionInfo"];
export type ToolCall = { id?: string; function?: { name?: string; arguments?: unknown } };
export type ChatMessage = {
  role: string;
  content?: unknown;
  tool_calls?: ToolCall[];
  name?: string;
  tool_call_id?: string;
};
export type Sampling = { temperature?: number; maxTokens?: number; seed?: number };
/** `own`: what is said first stands in place of the example's question. */
type Words = { content: string; own: boolean };

export type Turn = {
  id: number;
  /** What was said; empty when the example itself is played. */
  said: string;
  messages: ChatMessage[];
  /** The reply that is being drawn. */
  draft: string;
  state: "going" | "done" | "stopped" | "failed";
  problem?: string;
  rewards?: Record<string, number>;
  total?: number | null;
  tokens?: number;
  seconds?: number;
};

type Event =
  | { event: "token"; text: string }
  | { event: "message"; message: ChatMessage }
  | { event: "reward"; rewards: Record<string, number>; total: number | null }
  | { event: "done"; tokens: number; seconds: number }
  | { event: "error"; message: string };

export type SessionWish = { runId: string; checkpoint: string; environment: boolean; exampleId: string | null };

const ENDED_WAIT = 1_000;

/** A session for as long as the component lives: opened, asked about until it is ready, ended when it is left. */
function useSession(wish: SessionWish | null, round: number) {
  const asked = wish ? JSON.stringify(wish) : null;
  const [id, setId] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  // A new round is a new session
  useEffect(() => {
    let gone = false;
    let opened: string | null = null;
    setId(null);
    setError(null);
    if (!asked) return;
    // A moment's rest: choices that are changed at once open one session, not three.
    const timer = setTimeout(() => {
      unwrap(api.POST("/v1/playground/sessions", { body: JSON.parse(asked) as SessionWish }))
        .then((made) => {
          opened = made.id;
          if (gone) end(made.id);
          else setId(made.id);
        })
        .catch((problem) => !gone && setError(problem));
    }, 250);
    const leave = () => opened && end(opened);
    window.addEventListener("pagehide", leave);
    return () => {
      gone = true;
      clearTimeout(timer);
      window.removeEventListener("pagehide", leave);
      leave();
    };
  }, [asked, round]);
  const info = useQuery({
    queryKey: ["session", id],
    queryFn: () =>
      unwrap(api.GET("/v1/playground/sessions/{session_id}", { params: { path: { session_id: id ?? "" } } })),
    enabled: id !== null,
    refetchInterval: (query) => (query.state.data?.status === "starting" ? 400 : ENDED_WAIT * 10),
  });
  return { id, info: id ? info.data : undefined, error: error ?? (info.isError ? info.error : null) };
}

function end(id: string): void {
  request("DELETE", `/v1/playground/sessions/${encodeURIComponent(id)}`, undefined, { keepalive: true }).catch(
    () => undefined,
  );
}

export type Side = ReturnType<typeof useSide>;

/** A conversation with a checkpoint; null is none. */
export function useSide(wish: SessionWish | null, round: number) {
  const session = useSession(wish, round);
  return { ...session, ...useTurns(session.id), checkpoint: wish?.checkpoint ?? "", example: wish?.exampleId ?? null };
}

/** The turns of one session, and how to say something in it. */
function useTurns(session: string | null) {
  const [turns, setTurns] = useState<Turn[]>([]);
  const stop = useRef<AbortController | null>(null);
  const count = useRef(0);
  // Another session is another conversation
  useEffect(() => {
    setTurns([]);
    return () => stop.current?.abort();
  }, [session]);
  const say = useCallback(
    async (content: string, sampling: Sampling) => {
      if (!session) return;
      const control = new AbortController();
      stop.current = control;
      count.current += 1;
      const turn: Turn = { id: count.current, said: content, messages: [], draft: "", state: "going" };
      setTurns((before) => [...before, turn]);
      const show = perFrame((next: Turn) =>
        setTurns((before) => before.map((each) => (each.id === next.id ? next : each))),
      );
      await listen(session, { content, own: content !== "", ...sampling }, turn, control.signal, show);
    },
    [session],
  );
  return {
    turns,
    say,
    stop: useCallback(() => stop.current?.abort(), []),
    going: turns.at(-1)?.state === "going",
  };
}

type Show = (turn: Turn, now?: boolean) => void;

async function listen(
  session: string,
  body: Words & Sampling,
  turn: Turn,
  signal: AbortSignal,
  show: Show,
): Promise<void> {
  let now = turn;
  const put = (change: Partial<Turn>, flush = false) => {
    now = { ...now, ...change };
    show(now, flush);
  };
  try {
    const source = events(`/v1/playground/sessions/${encodeURIComponent(session)}/messages`, {
      method: "POST",
      body: JSON.stringify(body),
      headers: { "Content-Type": "application/json" },
      signal,
    });
    for await (const { data } of source) put(after(now, data as Event));
    put({ state: now.state === "going" ? "done" : now.state }, true);
  } catch (error) {
    if (signal.aborted) put({ state: "stopped" }, true);
    else put({ state: "failed", problem: error instanceof Error ? error.message : String(error) }, true);
  }
}

function after(turn: Turn, event: Event): Partial<Turn> {
  switch (event.event) {
    case "token":
      return { draft: turn.draft + event.text };
    case "message":
      return {
        messages: [...turn.messages, event.message],
        draft: event.message.role === "assistant" ? "" : turn.draft,
      };
    case "reward":
      return { rewards: event.rewards, total: event.total };
    case "done":
      return { state: "done", tokens: event.tokens, seconds: event.seconds };
    case "error":
      return { state: "failed", problem: event.message };
    default:
      return {};
  }
}

/** At most one call a frame, the latest; at once when asked. Tokens come faster than screens are drawn. */
function perFrame(show: (turn: Turn) => void): Show {
  let latest: Turn | null = null;
  let frame = 0;
  const flush = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    if (latest) show(latest);
    latest = null;
  };
  return (turn, now) => {
    latest = turn;
    if (now) flush();
    else frame ||= requestAnimationFrame(flush);
  };
}

/** Examples of a run to play: those it was evaluated on, with their prompt. */
export function useExamples(runId: string, mode: "eval" | "train") {
  return useQuery({
    queryKey: ["run", runId, "rollouts", "examples", mode],
    queryFn: () =>
      unwrap(
        api.GET("/v1/train/runs/{run_id}/rollouts/summary", {
          params: { path: { run_id: runId }, query: { mode, limit: 100 } },
        }),
      ),
    select: (found) => found.data,
    staleTime: 60_000,
  });
}
