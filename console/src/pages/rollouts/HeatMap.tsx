// The same examples across steps: a row for each example, a column for each step, coloured by mean reward.
import { useQueries, useQueryClient } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type CSSProperties, memo, useMemo, useRef, useState } from "react";
import type { Schemas } from "../../api/client";
import { type Outline, type Scope, stepQuery, summaryQuery } from "../../api/rollouts";
import { shownStep, stepName } from "../../api/steps";
import { Empty, ErrorNote, format, Plain, Segments, Skeleton } from "../../ui";
import { heat, type Range, rewardColour } from "./colour";

const MOST_COLUMNS = 120;
const PAGE = 200;
const MOST_PAGES = 50;
const HEIGHT = 22;

type Group = Schemas["RolloutGroup"];
type Sorting = "listed" | "worst" | "improved";
type Props = {
  run: string;
  scope: Scope;
  outline: Outline | undefined;
  range: Range;
  onOpen: (rollout: string, step: number) => void;
};

export function HeatMap({ run, scope, outline, range, onOpen }: Props) {
  const [sorting, setSorting] = useState<Sorting>("listed");
  const [pages, setPages] = useState(1);
  const found = useQueries({
    queries: Array.from({ length: pages }, (_, page) => summaryQuery(run, scope, page + 1, PAGE)),
  });
  const total = found[0]?.data?.total ?? 0;
  const wanted = Math.min(MOST_PAGES, Math.max(1, Math.ceil(total / PAGE)));
  if (pages < wanted && found.every((page) => page.data)) setPages(Math.min(wanted, pages * 4));
  const groups = useMemo(() => found.flatMap((page) => page.data?.data ?? []), [found]);
  const columns = useMemo(() => columnsOf(outline, scope.mode), [outline, scope.mode]);
  const rows = useMemo(() => sorted(groups, sorting), [groups, sorting]);
  const error = found.find((page) => page.error)?.error;
  if (error) return <ErrorNote error={error} />;
  if (!found[0]?.data || !outline) return <Skeleton lines={10} />;
  if (!groups.length) return <Empty title="No rollouts yet">They appear here as soon as the first step is done.</Empty>;
  return (
    <div className="ro-map">
      <div className="spread ro-map-head">
        <Segments<Sorting>
          label="Order of the examples"
          value={sorting}
          onChange={setSorting}
          options={[
            { value: "listed", label: "As listed" },
            { value: "worst", label: "Lowest latest reward" },
            { value: "improved", label: "Most improved" },
          ]}
        />
        <Legend range={range} />
      </div>
      <Grid rows={rows} columns={columns} range={range} run={run} scope={scope} onOpen={onOpen} />
      {total > groups.length && pages >= MOST_PAGES && (
        <p className="muted small">
          The first {format.plural(groups.length, "example")} of {format.compact(total)} are shown.
        </p>
      )}
    </div>
  );
}

function Legend({ range }: { range: Range }) {
  return (
    <span className="row small muted num">
      {format.number(range.low)}
      <span className="ro-scale" aria-hidden="true">
        {[0, 0.25, 0.5, 0.75, 1].map((at) => (
          <i key={at} style={{ background: heat(at) }} />
        ))}
      </span>
      {format.number(range.high)}
    </span>
  );
}

/** Steps that share a column, and what the first of them is called. */
type Column = { from: number; to: number; shown: number };

function Grid({
  rows,
  columns,
  range,
  run,
  scope,
  onOpen,
}: Omit<Props, "outline"> & { rows: Group[]; columns: Column[] }) {
  const scroller = useRef<HTMLDivElement>(null);
  const client = useQueryClient();
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => HEIGHT,
    overscan: 6,
  });
  const open = async (group: Group, column: Column) => {
    const step = group.rewardHistory.filter((each) => each.step >= column.from && each.step <= column.to).at(-1)?.step;
    if (step === undefined) return;
    const items = await client.fetchQuery(stepQuery(run, { ...scope, promptMessageId: group.promptMessageId }, step));
    if (items[0]) onOpen(items[0].id, step);
  };
  const tracks = `minmax(140px, 260px) repeat(${columns.length}, minmax(7px, 64px)) 52px`;
  return (
    <div
      className="ro-grid"
      style={{ "--least": `${200 + columns.length * 9}px` } as CSSProperties}
      ref={scroller}
      tabIndex={0}
      role="region"
      aria-label="Reward of every example at every step"
    >
      <div className="ro-grid-row ro-grid-head muted small num" style={{ gridTemplateColumns: tracks }}>
        <span>example</span>
        {columns.map((column, index) => (
          <span key={column.from}>{index % Math.ceil(columns.length / 12) === 0 ? column.shown : ""}</span>
        ))}
        <span className="right">last</span>
      </div>
      <div className="ro-rows" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => (
          <div key={item.key} className="ro-row" style={{ height: HEIGHT, transform: `translateY(${item.start}px)` }}>
            <GridRow
              group={rows[item.index] as Group}
              mode={scope.mode}
              columns={columns}
              tracks={tracks}
              range={range}
              onOpen={open}
            />
          </div>
        ))}
      </div>
    </div>
  );
}

const GridRow = memo(function GridRow({
  group,
  mode,
  columns,
  tracks,
  range,
  onOpen,
}: {
  group: Group;
  mode: string;
  columns: Column[];
  tracks: string;
  range: Range;
  onOpen: (group: Group, column: Column) => void;
}) {
  const cells = bucketed(group, columns);
  const played = group.rewardHistory.at(-1)?.step;
  return (
    <div className="ro-grid-row" style={{ gridTemplateColumns: tracks }}>
      <span className="clip small" title={group.promptText.slice(0, 300)}>
        <Plain text={group.promptText.slice(0, 120) || group.promptMessageId} />
      </span>
      {cells.map((value, index) =>
        value === undefined ? (
          <span key={index} className="ro-cell-empty" />
        ) : (
          <button
            key={index}
            type="button"
            tabIndex={-1}
            className="ro-cell-heat"
            style={{ background: rewardColour(value, range) }}
            title={`${stepName(mode, (columns[index] as Column).from)}: ${format.reward(value)}`}
            aria-label={`Open ${stepName(mode, (columns[index] as Column).from).toLowerCase()}, reward ${format.reward(value)}`}
            onClick={() => onOpen(group, columns[index] as Column)}
          />
        ),
      )}
      <span
        className="right small num"
        title={played === undefined ? undefined : `Last played: ${stepName(mode, played).toLowerCase()}`}
      >
        {format.reward(latest(group))}
      </span>
    </div>
  );
});

/** One column for each step, or for several when there are many. */
function columnsOf(outline: Outline | undefined, mode: string): Column[] {
  const steps = (outline?.steps ?? []).map((each) => each.step).reverse();
  const size = Math.max(1, Math.ceil(steps.length / MOST_COLUMNS));
  const columns: Column[] = [];
  for (let at = 0; at < steps.length; at += size) {
    const from = steps[at] as number;
    const to = steps[Math.min(steps.length, at + size) - 1] as number;
    columns.push({ from, to, shown: shownStep(mode, from) });
  }
  return columns;
}

/** The mean of each column; undefined where the example was not played, null where nothing was scored. */
function bucketed(group: Group, columns: Column[]): (number | null | undefined)[] {
  const history = group.rewardHistory;
  let at = 0;
  return columns.map(({ to }) => {
    let sum = 0;
    let scored = 0;
    let any = false;
    for (; at < history.length && (history[at]?.step ?? 0) <= to; at++) {
      any = true;
      const value = history[at]?.meanReward ?? null;
      if (value !== null) {
        sum += value;
        scored += 1;
      }
    }
    return !any ? undefined : scored ? sum / scored : null;
  });
}

function latest(group: Group): number | null {
  return group.rewardHistory.at(-1)?.meanReward ?? null;
}

function sorted(groups: Group[], sorting: Sorting): Group[] {
  if (sorting === "listed") return groups;
  const score = (group: Group) => {
    const last = latest(group);
    if (last === null) return Number.POSITIVE_INFINITY;
    const first = group.rewardHistory.find((each) => each.meanReward !== null)?.meanReward ?? 0;
    return sorting === "worst" ? last : first - last;
  };
  return [...groups].sort((a, b) => score(a) - score(b));
}
