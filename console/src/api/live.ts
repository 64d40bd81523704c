// One stream per open run: it says what is new, and the queries that show it are asked again, not too often.
import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import type { RunStatus } from "./client";
import { isOver } from "./queries";
import { useStream } from "./stream";

const KINDS: Record<string, string[]> = {
  points: ["scalars", "details"],
  rollouts: ["rollouts", "details"],
};
const OTHERS = ["details", "events", "alerts", "checkpoints", "evals", "logs", "scalars"];
const EVERY = 1_000;

/** Keep everything under ["run", id, kind] fresh while the component lives. */
export function useLiveRun(id: string, status: RunStatus | undefined): void {
  const client = useQueryClient();
  const renew = useMemo(() => {
    const due = new Set<string>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const arm = () => (timer ??= setTimeout(flush, EVERY));
    const flush = () => {
      timer = undefined;
      for (const kind of due) {
        const queryKey = ["run", id, kind];
        // What is on its way may have been read before the news: it is asked once more when it is here.
        if (client.isFetching({ queryKey })) continue;
        due.delete(kind);
        client.invalidateQueries({ queryKey }, { cancelRefetch: false });
      }
      if (due.size) arm();
    };
    return (kinds: string[]) => {
      for (const kind of kinds) due.add(kind);
      arm();
    };
  }, [client, id]);
  const path =
    status === undefined || isOver(status) ? null : `/v1/train/runs/${encodeURIComponent(id)}/stream?latest=true`;
  useStream(
    path,
    (data) => renew(KINDS[(data as { type?: string }).type ?? ""] ?? OTHERS),
    // The stream tells what comes after it began; what came before, and after the page was read, is asked for.
    () => renew(kindsOf(client, id)),
  );
}

/** The kinds that are shown, or were. */
function kindsOf(client: QueryClient, id: string): string[] {
  return client
    .getQueryCache()
    .findAll({ queryKey: ["run", id] })
    .map((query) => String(query.queryKey[2]));
}
