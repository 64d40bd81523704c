// The rewards of runs, small enough for a list. Rows that come into view together are asked for in one call.
import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "./client";

/** As many as the server gives at once. */
const MOST = 100;

type Waiting = { resolve: (curve: number[]) => void; reject: (error: unknown) => void };
let waiting = new Map<string, Waiting[]>();

function load(id: string): Promise<number[]> {
  return new Promise((resolve, reject) => {
    if (waiting.size === 0) queueMicrotask(ask);
    waiting.set(id, [...(waiting.get(id) ?? []), { resolve, reject }]);
  });
}

function ask(): void {
  const asked = [...waiting];
  waiting = new Map();
  for (let from = 0; from < asked.length; from += MOST) askFor(asked.slice(from, from + MOST));
}

async function askFor(asked: [string, Waiting[]][]): Promise<void> {
  try {
    const ids = asked.map(([id]) => id).join(",");
    const { curves } = await unwrap(api.GET("/v1/train/curves", { params: { query: { ids } } }));
    for (const [id, readers] of asked) for (const each of readers) each.resolve(curves[id] ?? []);
  } catch (error) {
    for (const [, readers] of asked) for (const each of readers) each.reject(error);
  }
}

/** The training reward of a run, asked for again when it has gone further. */
export function useCurve(id: string, step: number | null) {
  return useQuery({
    queryKey: ["curve", id, step],
    queryFn: () => load(id),
    enabled: step !== null,
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: (before) => before,
  });
}
