// The list of runs: what each does, how well, and what to do next; filtered by a line that is part of the address.
import { useMemo, useState } from "react";
import type { RunInfo } from "../api/client";
import { useChangeRun, useRunAction, useRuns } from "../api/queries";
import {
  Button,
  Card,
  Confirm,
  Dialog,
  Empty,
  ErrorNote,
  Field,
  format,
  Icon,
  Input,
  Link,
  Note,
  Page,
  Plain,
  SearchBox,
  Segments,
  Skeleton,
  type Sort,
  sorted,
  Table,
  useGo,
  useKeys,
  useNarrow,
  useSearch,
} from "../ui";
import { MOST_BESIDE } from "./run/context";
import { columns, runHref } from "./runs/columns";
import { HELP, parse } from "./runs/filter";
import "./runs/runs.css";

/** As many as an address can name. */
const MOST_SAVED = 1_000;
/** So many names a question has room for. */
const MOST_NAMED = 12;

export default function Runs() {
  const search = useSearch();
  const archived = search.get("show") === "archived";
  const runs = useRuns({ archived });
  const filter = useMemo(() => parse(search.get("q")), [search]);
  const found = useMemo(() => pinnedFirst((runs.data ?? []).filter(filter.test)), [runs.data, filter]);
  const actions = (
    <>
      {runs.data && (
        <a
          className="button"
          href={`/v1/train/runs.csv?ids=${found.slice(0, MOST_SAVED).map((run) => encodeURIComponent(run.id))}`}
          title="Download the listed runs as a table"
          download
        >
          <Icon name="download" /> CSV
        </a>
      )}
      <Link className="button button-primary" href="/experiments/new">
        <Icon name="plus" /> New run
      </Link>
    </>
  );
  return (
    <Page title="Runs" actions={actions}>
      <div className="runs-bar">
        <SearchBox
          label="Filter runs"
          placeholder="Filter: status:active tag:rag reward>0.5"
          value={search.get("q")}
          onChange={(event) => search.set({ q: event.target.value })}
          title={HELP}
        />
        <Segments
          label="Which runs"
          value={archived ? "archived" : "current"}
          onChange={(value) => search.set({ show: value === "archived" ? value : null })}
          options={[
            { value: "current", label: "Current" },
            { value: "archived", label: "Archived" },
          ]}
        />
        <span className="muted small num">
          {runs.data &&
            (found.length === runs.data.length
              ? format.plural(found.length, "run")
              : `${found.length} of ${format.plural(runs.data.length, "run")}`)}
        </span>
      </div>
      {filter.problem && <Note tone="warn">{filter.problem}</Note>}
      {runs.isError && <ErrorNote error={runs.error} onRetry={() => runs.refetch()} />}
      {runs.isPending && <Skeleton lines={8} />}
      {runs.data && <List runs={runs.data} found={found} archived={archived} />}
    </Page>
  );
}

function pinnedFirst(runs: RunInfo[]): RunInfo[] {
  return [...runs].sort((a, b) => Number(b.pinned) - Number(a.pinned));
}

function List({ runs, found, archived }: { runs: RunInfo[]; found: RunInfo[]; archived: boolean }) {
  const search = useSearch();
  const go = useGo();
  const narrow = useNarrow(900);
  const change = useChangeRun();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [current, setCurrent] = useState<string | null>(null);
  const choose = (ids: readonly string[], on: boolean) => setChosen((before) => toggled(before, ids, on));
  const shown = columns(
    {
      listed: found.map((run) => run.id),
      chosen,
      choose,
      pin: (run) => change.mutate({ id: run.id, pinned: !run.pinned }),
      tag: (tag) => search.set({ q: `${search.get("q")} tag:${/\s/.test(tag) ? `"${tag}"` : tag}`.trim() }),
      baseline: runs.find((run) => run.pinned),
    },
    narrow,
  );
  const sort = sortOf(search.get("sort"));
  const rows = sorted(found, shown, sort);
  const move = (by: number) => {
    const at = rows.findIndex((run) => run.id === current);
    setCurrent(rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.id ?? null);
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: () => current && go(`/experiments/${current}`),
    x: () => current && choose([current], !chosen.has(current)),
  });
  if (runs.length === 0) return <Nothing archived={archived} />;
  if (found.length === 0)
    return (
      <Empty
        icon="search"
        title="No run matches the filter"
        actions={<Button onClick={() => search.set({ q: null })}>Clear the filter</Button>}
      />
    );
  return (
    <>
      {chosen.size > 0 && <Chosen runs={runs.filter((run) => chosen.has(run.id))} onDone={choose} />}
      {change.isError && <ErrorNote error={change.error} />}
      <Card flush>
        <Table
          label="Runs"
          rows={rows}
          columns={shown}
          rowKey={(run) => run.id}
          onOpen={(run) => go(runHref(run))}
          rowHeight={54}
          maxHeight="calc(100vh - 190px)"
          minWidth={narrow ? undefined : 940}
          current={current}
          onCurrent={setCurrent}
          sort={sort}
          onSort={(next) => search.set({ sort: next && (next.down ? "-" : "") + next.id })}
        />
      </Card>
    </>
  );
}

/** `reward` goes up, `-reward` down. */
function sortOf(text: string): Sort {
  return text ? { id: text.replace(/^-/, ""), down: text.startsWith("-") } : null;
}

function toggled(before: ReadonlySet<string>, ids: readonly string[], on: boolean): ReadonlySet<string> {
  const next = new Set(before);
  for (const id of ids) {
    if (on) next.add(id);
    else next.delete(id);
  }
  return next;
}

type ChosenProps = { runs: RunInfo[]; onDone: (ids: readonly string[], on: boolean) => void };

/** What can be done to several runs at once. Those it could not be done to stay chosen, and it says why. */
function Chosen({ runs, onDone }: ChosenProps) {
  const change = useChangeRun();
  const action = useRunAction();
  const [asking, setAsking] = useState<"delete" | "tag" | null>(null);
  const [tag, setTag] = useState("");
  const [failed, setFailed] = useState<{ count: number; why: unknown } | null>(null);
  const every = async (work: (run: RunInfo) => Promise<unknown>) => {
    const ends = await Promise.allSettled(runs.map(work));
    const refused = ends.filter((end) => end.status === "rejected");
    setAsking(null);
    setFailed(refused[0] ? { count: refused.length, why: refused[0].reason } : null);
    onDone(
      runs.filter((_, index) => ends[index]?.status === "fulfilled").map((run) => run.id),
      false,
    );
  };
  const archive = runs.some((run) => !run.archived);
  return (
    <div className="chosen">
      <strong>{format.plural(runs.length, "run")} selected</strong>
      <span className="grow" />
      {runs.length > 1 && <Compare runs={runs} />}
      <Button
        size="small"
        icon={<Icon name="archive" />}
        busy={change.isPending}
        onClick={() => every((run) => change.mutateAsync({ id: run.id, archived: archive }))}
      >
        {archive ? "Archive" : "Unarchive"}
      </Button>
      <Button size="small" onClick={() => setAsking("tag")}>
        Add a tag
      </Button>
      <Button size="small" kind="danger" icon={<Icon name="trash" />} onClick={() => setAsking("delete")}>
        Delete
      </Button>
      <Button
        size="small"
        kind="quiet"
        onClick={() =>
          onDone(
            runs.map((run) => run.id),
            false,
          )
        }
      >
        Clear
      </Button>
      {failed && <ErrorNote title={`${format.plural(failed.count, "run")} not changed`} error={failed.why} />}
      <Confirm
        open={asking === "delete"}
        onClose={() => setAsking(null)}
        title={`Delete ${format.plural(runs.length, "run")}?`}
        action="Delete"
        busy={action.isPending}
        onConfirm={() => every((run) => action.mutateAsync({ id: run.id, action: "delete" }))}
      >
        <div className="stack">
          <ul className="chosen-names">
            {runs.slice(0, MOST_NAMED).map((run) => (
              <li key={run.id}>
                <Plain text={run.name} />
              </li>
            ))}
            {runs.length > MOST_NAMED && <li>and {format.plural(runs.length - MOST_NAMED, "other", "others")}</li>}
          </ul>
          <p>Their curves, rollouts and checkpoints are deleted. This cannot be undone.</p>
        </div>
      </Confirm>
      <Dialog
        open={asking === "tag"}
        onClose={() => setAsking(null)}
        title="Add a tag"
        actions={
          <Button
            kind="primary"
            disabled={!tag.trim()}
            onClick={() =>
              every((run) => change.mutateAsync({ id: run.id, tags: [...new Set([...run.tags, tag.trim()])] }))
            }
          >
            Add
          </Button>
        }
      >
        <Field label="Tag">
          {(id) => (
            <Input id={id} value={tag} maxLength={60} onChange={(event) => setTag(event.target.value)} autoFocus />
          )}
        </Field>
      </Dialog>
    </div>
  );
}

/** Their curves in one chart, with a table of the settings that differ. */
function Compare({ runs }: { runs: RunInfo[] }) {
  const [first, ...others] = runs.filter((run) => run.latestStep !== null);
  if (!first || others.length === 0) return null;
  if (others.length > MOST_BESIDE)
    return <span className="muted small">At most {MOST_BESIDE + 1} can be compared</span>;
  return (
    <Link
      className="button button-small"
      href={`/experiments/${first.id}/train?with=${others.map((run) => run.id).join(",")}`}
    >
      <Icon name="runs" /> Compare
    </Link>
  );
}

function Nothing({ archived }: { archived: boolean }) {
  if (archived)
    return (
      <Empty icon="archive" title="Nothing is archived">
        Select runs in the list and archive them to keep it short.
      </Empty>
    );
  return (
    <Card>
      <Empty
        icon="runs"
        title="No runs yet"
        command="benchmax launch arithmetic"
        actions={
          <Link className="button button-primary" href="/experiments/new">
            Start one here
          </Link>
        }
      >
        A run trains a model on an environment and appears here as it learns. Start one in the browser, or from a
        terminal:
      </Empty>
    </Card>
  );
}
