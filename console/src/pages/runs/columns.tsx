import type { RunInfo } from "../../api/client";
import { useCurve } from "../../api/curves";
import { Chip, type Column, cx, format, Icon, Link, Num, Plain, Sparkline, Time } from "../../ui";
import { isStarting, meaning, StatusPill } from "./status";

export type Marks = {
  /** Every run of the list, by id. */
  listed: readonly string[];
  chosen: ReadonlySet<string>;
  choose: (ids: readonly string[], on: boolean) => void;
  pin: (run: RunInfo) => void;
  tag: (tag: string) => void;
  baseline: RunInfo | undefined;
};

export const runHref = (run: RunInfo, tab?: string) =>
  `/experiments/${encodeURIComponent(run.id)}${tab ? `/${tab}` : ""}`;

/** How good a run is now: on held-out rows when it was evaluated. */
export const score = (run: RunInfo) => run.evalRewardLatest ?? run.rewardLatest ?? null;

export function columns(marks: Marks, narrow: boolean): Column<RunInfo>[] {
  const name: Column<RunInfo> = {
    id: "name",
    head: "Run",
    width: narrow ? "minmax(150px, 1fr)" : "minmax(170px, 1fr)",
    sort: (run) => run.name.toLowerCase(),
    cell: (run) => <Name run={run} marks={marks} narrow={narrow} />,
  };
  const status: Column<RunInfo> = {
    id: "status",
    head: "Status",
    width: narrow ? "92px" : "112px",
    sort: (run) => run.status,
    cell: (run) => <Status run={run} narrow={narrow} />,
  };
  const reward: Column<RunInfo> = {
    id: "reward",
    head: "Reward",
    title: "Mean training reward now, and the change since step 1",
    width: narrow ? "56px" : "98px",
    align: "right",
    sort: (run) => run.rewardLatest,
    cell: (run) => <Reward run={run} short={narrow} />,
  };
  if (narrow) return [name, status, reward];
  const held: Column<RunInfo> = {
    id: "eval",
    head: "Eval",
    title: "Mean reward on held-out rows, and the change since before training",
    width: "98px",
    align: "right",
    sort: (run) => run.evalRewardLatest,
    cell: (run) => <Change first={run.evalRewardFirst} latest={run.evalRewardLatest} />,
  };
  return [
    {
      id: "choose",
      head: (
        <input
          type="checkbox"
          aria-label="Select all listed runs"
          checked={marks.listed.every((id) => marks.chosen.has(id))}
          onChange={(event) => marks.choose(marks.listed, event.target.checked)}
        />
      ),
      width: "15px",
      cell: (run) => (
        <input
          type="checkbox"
          aria-label={`Select ${run.name}`}
          checked={marks.chosen.has(run.id)}
          onChange={(event) => marks.choose([run.id], event.target.checked)}
        />
      ),
    },
    name,
    status,
    {
      id: "progress",
      head: "Step",
      width: "104px",
      sort: (run) => (run.latestStep === null ? null : run.latestStep / (run.totalSteps || 1)),
      cell: (run) => <Progress run={run} />,
    },
    reward,
    held,
    ...(marks.baseline ? [against(marks.baseline)] : []),
    {
      id: "elapsed",
      head: "Time",
      width: "76px",
      align: "right",
      sort: (run) => run.elapsedSeconds,
      cell: (run) => <Num value={run.elapsedSeconds} as="duration" />,
    },
    {
      id: "created",
      head: "Started",
      width: "86px",
      align: "right",
      sort: (run) => run.createdAt,
      cell: (run) => <Time at={run.createdAt} />,
    },
  ];
}

function against(baseline: RunInfo): Column<RunInfo> {
  const base = score(baseline);
  // Rewards of other rows, or of another environment, say nothing about each other.
  const delta = (run: RunInfo) =>
    run.id === baseline.id || run.taskDigest !== baseline.taskDigest || base === null || score(run) === null
      ? null
      : score(run)! - base;
  return {
    id: "baseline",
    head: "vs pinned",
    title: `Reward against ${baseline.name}, for runs of the same environment and rows`,
    width: "78px",
    align: "right",
    sort: delta,
    cell: (run) => {
      const value = delta(run);
      return value === null ? (
        <span className="muted">–</span>
      ) : (
        <span className={cx("num", value > 0 ? "good" : value < 0 && "bad")}>{fixed(value)}</span>
      );
    },
  };
}

const over = (run: RunInfo) => run.status === "failed" || run.status === "stalled";

/** What it trains on, and what was set: "arithmetic · smollm2-135m · learning_rate 0.001". */
export function setup(run: RunInfo): string {
  const given = Object.entries(run.given).map(([name, value]) => `${name} ${shown(value)}`);
  return [run.environment, run.model.split("/").at(-1), ...given].filter(Boolean).join(" · ");
}

function shown(value: unknown): string {
  return typeof value === "number" ? format.number(value, 4) : String(value);
}

function Name({ run, marks, narrow }: { run: RunInfo; marks: Marks; narrow: boolean }) {
  const told = over(run) ? run.statusReason : run.latestActivityMessage || run.statusReason;
  const status = told && told !== run.status && !isStarting(run) ? told : meaning(run).means;
  // Of a run that is over and done, what it was matters more than that it is.
  const said = (run.status === "complete" && setup(run)) || status;
  return (
    <div className="run-name">
      <div className="grow">
        <div className="row-tight">
          <span className="run-words">
            <Link href={runHref(run)} className="run-link clip">
              <Plain text={run.name} />
            </Link>
            {!narrow &&
              run.tags.slice(0, 3).map((tag) => (
                <Chip key={tag} onClick={() => marks.tag(tag)}>
                  <Plain text={tag} />
                </Chip>
              ))}
          </span>
          <button
            type="button"
            className={cx("run-pin", run.pinned && "run-pinned")}
            aria-pressed={run.pinned}
            aria-label={`Pin ${run.name} as the baseline`}
            title={run.pinned ? "The baseline; click to unpin" : "Pin as the baseline"}
            onClick={() => marks.pin(run)}
          >
            <Icon name="pin" size={14} />
          </button>
        </div>
        <div className="run-said clip" title={[setup(run), status].filter(Boolean).join("\n")}>
          <Plain text={said} />
        </div>
      </div>
    </div>
  );
}

function Status({ run, narrow }: { run: RunInfo; narrow: boolean }) {
  const { next } = meaning(run);
  return (
    <div className="run-status">
      <StatusPill run={run} />
      {!narrow && next && <Link href={runHref(run, next.tab)}>{next.label}</Link>}
    </div>
  );
}

function Progress({ run }: { run: RunInfo }) {
  if (run.latestStep === null) return <span className="muted">–</span>;
  const done = run.latestStep + 1;
  const total = run.totalSteps;
  return (
    <div className="run-progress">
      <span className="num">
        {Math.min(done, total ?? done).toLocaleString("en-US")}
        {total !== null && <span className="muted"> / {total.toLocaleString("en-US")}</span>}
      </span>
      {total !== null && run.status === "active" && (
        <span className="bar">
          <i style={{ width: `${Math.min(100, (done / total) * 100)}%` }} />
        </span>
      )}
    </div>
  );
}

/** The reward now, over its curve. */
function Reward({ run, short }: { run: RunInfo; short: boolean }) {
  const curve = useCurve(run.id, run.latestStep);
  return (
    <div className="run-reward">
      <Change first={run.rewardFirst} latest={run.rewardLatest} short={short} />
      {curve.data && <Sparkline values={curve.data} label="Training reward" />}
    </div>
  );
}

/** A change of a reward, always with two places. */
export const fixed = (delta: number) => `${delta > 0 ? "+" : delta < 0 ? "−" : "±"}${Math.abs(delta).toFixed(2)}`;

export function Change({
  first,
  latest,
  short,
}: {
  first: number | null | undefined;
  latest: number | null | undefined;
  short?: boolean;
}) {
  if (latest === null || latest === undefined) return <span className="muted">–</span>;
  const delta = first === null || first === undefined ? null : latest - first;
  return (
    <span className="num">
      <b className="strong">{latest.toFixed(3)}</b>
      {!short && (
        <span
          className={cx(
            "change",
            delta !== null && delta > 0.0005 ? "good" : delta !== null && delta < -0.0005 ? "bad" : "muted",
          )}
        >
          {delta === null ? "" : fixed(delta)}
        </span>
      )}
    </span>
  );
}
