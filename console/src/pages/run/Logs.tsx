// What the run's processes wrote: the end of it first, and new lines as they come.
import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { api, type Schemas, unwrap } from "../../api/client";
import {
  Button,
  Check,
  Copy,
  Empty,
  ErrorNote,
  marked,
  SearchBox,
  Segments,
  Select,
  Skeleton,
  useSearch,
} from "../../ui";
import { useRun } from "./context";

type Row = Schemas["LogRow"];
type Process = "child" | "trainer" | "environment";
const PROCESSES: { value: Process; label: string; title: string }[] = [
  { value: "environment", label: "Environment", title: "What the environment logged" },
  { value: "trainer", label: "Trainer", title: "The trainer's own log" },
  { value: "child", label: "Output", title: "What the run's process printed" },
];
const PAGE = 1000;
const KEPT = 20_000;

export default function Logs() {
  const { run, live } = useRun();
  const search = useSearch();
  // What a process printed last says why it failed; a run without an environment has no log of one.
  const first = run.status === "failed" || run.type === "sft" ? "child" : "environment";
  const process = PROCESSES.find((each) => each.value === search.get("process"))?.value ?? first;
  const level = search.get("level");
  const [follow, setFollow] = useState(true);
  const { lines, error, pending, retry } = useLines(process, level, live);
  const text = search.get("q").toLowerCase();
  const shown = useMemo(
    () => (text ? lines.filter((line) => line.message.toLowerCase().includes(text)) : lines),
    [lines, text],
  );
  return (
    <div className="stack">
      <div className="log-bar">
        <Segments
          label="Process"
          value={process}
          onChange={(value) => search.set({ process: value === first ? null : value })}
          options={PROCESSES}
        />
        <Select aria-label="Level" value={level} onChange={(event) => search.set({ level: event.target.value })}>
          <option value="">All levels</option>
          <option value="INFO">Info and above</option>
          <option value="WARNING">Warnings and errors</option>
          <option value="ERROR">Errors</option>
        </Select>
        <SearchBox
          label="Search the log"
          placeholder="Search"
          value={search.get("q")}
          onChange={(event) => search.set({ q: event.target.value })}
        />
        {live && <Check label="Follow" checked={follow} onChange={(event) => setFollow(event.target.checked)} />}
        <span className="grow" />
        <Copy text={() => shown.map((line) => line.message).join("\n")} label="Copy what is shown">
          Copy
        </Copy>
        <Button size="small" kind="quiet" onClick={() => save(shown)}>
          Download
        </Button>
      </div>
      {error ? <ErrorNote error={error} onRetry={retry} /> : null}
      {pending ? (
        <Skeleton lines={8} />
      ) : shown.length === 0 ? (
        <Nothing process={process} filtered={lines.length > 0 || level !== ""} />
      ) : (
        <Lines lines={shown} follow={follow} />
      )}
    </div>
  );
}

const STEPS = "For what training did step by step, see Train.";
const EMPTY: Record<Process, string> = {
  child: `What the environment prints and errors of the run's process appear here. ${STEPS}`,
  trainer: `Warnings of the trainer and what the environment logs appear here. ${STEPS}`,
  environment: `What the environment logs during rollouts, with Python's logging, appears here. ${STEPS}`,
};

function Nothing({ process, filtered }: { process: Process; filtered: boolean }) {
  if (filtered) return <Empty title="No matching lines">Change the level or the search.</Empty>;
  return <Empty title="Nothing was logged">{EMPTY[process]}</Empty>;
}

/** The last lines, and those that come after; begun anew when the process or the level changes. */
function useLines(process: Process, level: string, live: boolean) {
  const { id } = useRun();
  const [kept, setKept] = useState<{ key: string; lines: Row[]; after: number | null }>({
    key: "",
    lines: [],
    after: null,
  });
  const key = `${id} ${process} ${level}`;
  const mine = kept.key === key ? kept : { key, lines: [], after: null };
  const query = useQuery({
    queryKey: ["run", id, "logs", process, level, mine.after],
    queryFn: () =>
      unwrap(
        api.GET("/v1/train/runs/{run_id}/logs", {
          params: {
            path: { run_id: id },
            query: {
              process,
              limit: PAGE,
              level: level || undefined,
              ...(mine.after === null ? { tail: true } : { after: mine.after }),
            },
          },
        }),
      ),
    refetchInterval: live ? 2_000 : false,
    gcTime: 0,
  });
  useEffect(() => {
    const page = query.data;
    if (!page) return;
    const next = Number(page.nextCursor);
    setKept((before) => {
      const same = before.key === key;
      if (same && before.after === next && page.lines.length === 0) return before;
      const known = same ? before.lines : [];
      const last = known[known.length - 1]?.id ?? -1;
      const fresh = page.lines.filter((line) => line.id > last);
      return { key, lines: [...known, ...fresh].slice(-KEPT), after: next };
    });
  }, [query.data, key]);
  return {
    lines: mine.lines,
    error: query.error,
    pending: query.isPending && mine.lines.length === 0 && mine.after === null,
    retry: () => query.refetch(),
  };
}

function Lines({ lines, follow }: { lines: Row[]; follow: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => 19,
    overscan: 30,
    getItemKey: (index) => lines[index]!.id,
  });
  useEffect(() => {
    if (follow && lines.length) virtual.scrollToIndex(lines.length - 1, { align: "end" });
  }, [follow, lines.length, virtual]);
  return (
    <div className="log" ref={box} role="log" aria-label="Log" tabIndex={0}>
      <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {virtual.getVirtualItems().map((item) => {
          const line = lines[item.index]!;
          return (
            <div
              key={item.key}
              ref={virtual.measureElement}
              data-index={item.index}
              className={`log-line log-${line.level}`}
              style={{ transform: `translateY(${item.start}px)` }}
            >
              <When line={line} />
              <span className="log-level">{line.level.toLowerCase()}</span>
              <bdi className="log-text">{marked(line.message)}</bdi>
            </div>
          );
        })}
      </div>
    </div>
  );
}

/** The time of a line; one that has none of its own shows that of the line before, softly. */
function When({ line }: { line: Row }) {
  if (!line.createdAt) return <time />;
  const at = new Date(line.createdAt);
  const title = line.approximate
    ? `${at.toLocaleString()} or later: the line has no time of its own`
    : at.toLocaleString();
  return (
    <time dateTime={line.createdAt} title={title} className={line.approximate ? "log-about" : undefined}>
      {at.toLocaleTimeString("en-GB")}
    </time>
  );
}

function save(lines: Row[]): void {
  const text = lines.map((line) => [line.createdAt, line.level, line.message].filter(Boolean).join(" ")).join("\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  link.download = "run.log";
  link.click();
  URL.revokeObjectURL(link.href);
}
