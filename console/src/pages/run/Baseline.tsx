// The run to hold this one against: the one before it on the same rows, unless another is chosen.
import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import type { RunInfo } from "../../api/client";
import { useRuns } from "../../api/queries";
import { format, Link, Plain, Select, useSearch } from "../../ui";
import { score } from "../runs/columns";
import { useRun } from "./context";
import { type Config, configQuery, differing, NOT_SET } from "./Differences";

/** So many settings that differ are named; the rest are counted. */
const NAMED = 3;
const LISTED = 100;

type Ours = Pick<RunInfo, "id" | "taskDigest" | "createdAt" | "parentRunId">;

const same = (run: Ours, other: RunInfo) => run.taskDigest !== "" && run.taskDigest === other.taskDigest;

/** The run it was forked from; else a pinned one, or the last one before it, of the same environment and rows. */
function before(run: Ours, others: readonly RunInfo[]): RunInfo | undefined {
  const alike = others.filter((other) => same(run, other));
  const earlier = alike.filter((other) => other.createdAt < run.createdAt);
  return (
    others.find((other) => other.id === run.parentRunId) ??
    alike.find((other) => other.pinned) ??
    earlier.reduce<RunInfo | undefined>(
      (last, each) => (last && last.createdAt > each.createdAt ? last : each),
      undefined,
    )
  );
}

/** Runs that have something to compare, those of the same task first; and the one that is held against this one. */
export function useBaseline() {
  const { id, run } = useRun();
  const search = useSearch();
  const runs = useRuns({}, { once: true, enabled: run.isOwner });
  const chosen = search.get("base");
  return useMemo(() => {
    const others = (runs.data ?? []).filter((other) => other.id !== id && other.latestStep !== null);
    const found = others.find((other) => other.id === chosen) ?? before(run, others);
    return { others, found };
  }, [runs.data, id, run, chosen]);
}

export function Baseline() {
  const { run } = useRun();
  const search = useSearch();
  const { others, found } = useBaseline();
  if (others.length === 0) return <span className="muted">There is no other run to compare it with.</span>;
  return (
    <>
      {found ? (
        <Against other={found} />
      ) : (
        <span className="muted">No earlier run on the same environment and rows.</span>
      )}
      <Chooser
        label="Run to compare with"
        prompt="Compare with…"
        run={run}
        others={others}
        found={found}
        onChoose={(id) => search.set({ base: id })}
      />
    </>
  );
}

/** All other runs, those that can be compared by their rewards first. */
export function Chooser({
  label,
  prompt,
  run,
  others,
  found,
  onChoose,
}: {
  label: string;
  prompt: string;
  run: Ours;
  others: readonly RunInfo[];
  found: RunInfo | undefined;
  onChoose: (id: string) => void;
}) {
  const groups = [
    { label: "Same environment and rows", runs: others.filter((other) => same(run, other)) },
    { label: "Other runs", runs: others.filter((other) => !same(run, other)) },
  ];
  return (
    <Select
      className="short-select"
      aria-label={label}
      value={found?.id ?? ""}
      onChange={(event) => onChoose(event.target.value)}
    >
      {!found && <option value="">{prompt}</option>}
      {groups.map(
        (group) =>
          group.runs.length > 0 && (
            <optgroup key={group.label} label={group.label}>
              {group.runs.slice(0, LISTED).map((other) => (
                <option key={other.id} value={other.id}>
                  {other.pinned ? "★ " : ""}
                  {other.name},{" "}
                  {new Date(other.createdAt).toLocaleString([], { dateStyle: "short", timeStyle: "short" })}
                </option>
              ))}
            </optgroup>
          ),
      )}
    </Select>
  );
}

/** What it earns more, and what was set otherwise. */
function Against({ other }: { other: RunInfo }) {
  const { id, run, tabHref } = useRun();
  const configs = useQueries({ queries: [other.id, id].map(configQuery) }).map((each) => each.data);
  const rows = configs.every((each) => each !== undefined) ? differing(configs as Config[]) : null;
  const [ours, theirs] = [score(run), score(other)];
  const delta = same(run, other) && ours !== null && theirs !== null ? ours - theirs : null;
  return (
    <span>
      {delta === null ? (
        same(run, other) ? null : (
          <>Trained on different rows, so rewards cannot be compared. </>
        )
      ) : (
        <>
          <b className={delta > 0 ? "good" : delta < 0 ? "bad" : undefined}>{format.gain(delta)}</b> reward against{" "}
          <Plain text={other.name.slice(0, 60)} />.{" "}
        </>
      )}
      {rows && (rows.length ? <Settings rows={rows} /> : "All settings are the same. ")}
      <Link href={tabHref("compare", { vs: other.id })}>Row by row</Link>
      {" · "}
      <Link href={tabHref("train", { with: other.id, base: other.id })}>Both curves</Link>
    </span>
  );
}

function Settings({ rows }: { rows: { label: string; values: string[] }[] }) {
  return (
    <>
      {rows.slice(0, NAMED).map(({ label, values: [was, is] }, index) => (
        <span key={label}>
          {index > 0 && ", "}
          {label}{" "}
          <b>
            <Plain text={(is ?? NOT_SET).slice(0, 40)} />
          </b>{" "}
          <span className="muted">
            (was <Plain text={(was ?? NOT_SET).slice(0, 40)} />)
          </span>
        </span>
      ))}
      {rows.length > NAMED && ` and ${format.plural(rows.length - NAMED, "other setting", "other settings")}`}.{" "}
    </>
  );
}
