// One stream per open run: it says what is new, and the queries that show it are asked again, not too often.
import { useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { isOver } from "./queries";
import { useStream } from "./stream";

const KINDS: Record<string, string[]> = {
  points: ["scalars", "details"],
  rollouts: ["rollouts", "details"],
};
const OTHERS = ["details", "events", "alerts", "checkpoints", "evals", "logs", "scalars"];
const EVERY = 1_000;

/** Keep everything under ["run", id, kind] fresh while the component lives. */
export function useLiveRun(id: string, status: string | undefined): void {
  const client = useQueryClient();
  const renew = useMemo(() => {
    const due = new Set<string>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      timer = undefined;
      for (const kind of due) client.invalidateQueries({ queryKey: ["run", id, kind] }, { cancelRefetch: false });
      due.clear();
    };
    return (kinds: string[]) => {
      for (const kind of kinds) due.add(kind);
      if (timer === undefined) timer = setTimeout(flush, EVERY);
    };
  }, [client, id]);
  const path =
    status === undefined || isOver(status) ? null : `/v1/train/runs/${encodeURIComponent(id)}/stream?latest=true`;
  useStream(
    path,
    (data) => renew(KINDS[(data as { type?: string }).type ?? ""] ?? OTHERS),
    () => client.invalidateQueries({ queryKey: ["run", id] }, { cancelRefetch: false }),
  );
}
