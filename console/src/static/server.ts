// What answers the console in a saved copy: the files beside it. A page opened from a disk may load scripts but not
// fetch, so the data is in scripts, and `fetch` is answered from them.
import type { Schemas } from "../api/client";
import { heatmap, listed, outline, searched, summary } from "./index";
import "./static.css";

type Item = Schemas["RolloutItem"];
type Saved = {
  run: string;
  note: string;
  /** Answers by what follows the run's address. */
  answers: Record<string, unknown>;
  /** Rollouts by mode, or by the eval they belong to. */
  items: Record<string, Item[]>;
  /** The file that holds a rollout. */
  files: Record<string, number>;
  loaded: Map<number, Map<string, Schemas["RolloutDetails"]>>;
  add: (file: number, found: Record<string, Schemas["RolloutDetails"]>) => void;
};

declare global {
  interface Window {
    __BENCHMAX_STATIC__: Saved;
  }
}

const saved = window.__BENCHMAX_STATIC__;
saved.loaded = new Map();
saved.add = (file, found) => saved.loaded.set(file, new Map(Object.entries(found)));

const SAVED = "This is a saved copy of a run: it is read-only.";

class Missing extends Error {}

async function answer(path: string, query: URLSearchParams): Promise<unknown> {
  const own = `/v1/train/runs/${encodeURIComponent(saved.run)}`;
  if (path === own) return saved.answers.details;
  if (path === "/v1/train/runs") return [saved.answers.details];
  if (!path.startsWith(`${own}/`)) throw new Missing();
  const part = path.slice(own.length + 1);
  const evalId = query.get("externalEvalId");
  const items = saved.items[evalId ?? query.get("mode") ?? "eval"] ?? [];
  switch (part) {
    case "rollouts":
      return listed(items, query);
    case "rollouts/outline":
      return outline(items, query);
    case "rollouts/summary":
      return summary(items, query);
    case "rollouts/heatmap":
      return heatmap(items, query);
    case "rollouts/search":
      return searched(items, query, whole);
    case "environment-logs":
      return { logs: await logsOf(query.get("rolloutId") ?? ""), nextCursor: null };
    case "logs":
      return { lines: [], nextCursor: null };
    case "scalars":
      return saved.answers[`scalars:${query.get("mode")}`] ?? {};
    case "rollouts/comparison":
    case "rollouts/comparison/summary":
      return known(`${part}:${evalId}`);
  }
  const details = /^rollouts\/([^/]+)\/details$/.exec(part);
  return details ? whole(decodeURIComponent(details[1] ?? "")) : known(part);
}

function known(name: string): unknown {
  if (!Object.hasOwn(saved.answers, name)) throw new Missing();
  return saved.answers[name];
}

async function whole(id: string): Promise<Schemas["RolloutDetails"]> {
  const file = Object.hasOwn(saved.files, id) ? saved.files[id] : undefined;
  if (file === undefined) throw new Missing();
  if (!saved.loaded.has(file)) await load(`data/rollouts-${file}.js`);
  const found = saved.loaded.get(file)?.get(id);
  if (!found) throw new Missing();
  return found;
}

function load(path: string): Promise<void> {
  return new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = path;
    script.onload = () => done();
    script.onerror = () => failed(new Missing());
    document.head.append(script);
  });
}

async function logsOf(id: string): Promise<unknown[]> {
  const details = await whole(id);
  const start = Date.parse((saved.answers.details as Schemas["RunDetails"]).createdAt);
  return (details.logs as { level: string; message: string; seconds: number }[]).map((line, index) => ({
    id: index,
    rolloutId: id,
    step: details.step,
    createdAt: new Date(start + line.seconds * 1000).toISOString(),
    level: line.level,
    message: line.message,
    traceback: null,
  }));
}

function reply(status: number, body: unknown): Response {
  return new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } });
}

window.fetch = async (input, init) => {
  const request = input instanceof Request ? input : null;
  const text = request?.url ?? String(input);
  const method = init?.method ?? request?.method ?? "GET";
  const url = new URL(text.slice(Math.max(0, text.indexOf("/v1/"))), "http://saved");
  if (method !== "GET") return reply(403, { error: SAVED });
  try {
    return reply(200, await answer(url.pathname, url.searchParams));
  } catch (error) {
    if (error instanceof Missing) return reply(404, { error: SAVED });
    throw error;
  }
};

document.documentElement.dataset.saved = "";
if (!window.location.hash) window.location.replace(`#/experiments/${encodeURIComponent(saved.run)}/train`);
const note = document.createElement("p");
note.className = "saved-note";
note.textContent = saved.note;
document.body.append(note);
