// What happened at some x: a sign over the chart with a line down to the axis, and its sentence on hover and focus.
import type uPlot from "uplot";
import { cx } from "../ui/format";
import { Icon } from "../ui/Icon";
import { marked } from "../ui/Plain";
import { Tip } from "../ui/Popover";

export type ChartMark = { id: string; x: number; icon: string; label: string; tone: "good" | "warn" | "bad" | "info" };

const SIZE = 18;
const MOST_ROWS = 4;

/** How far from the left each mark stands, in pixels; null where it is out of sight. The same list while nothing moved. */
export function places(
  u: uPlot,
  marks: readonly ChartMark[],
  before: readonly (number | null)[],
): readonly (number | null)[] {
  const { min, max } = u.scales.x ?? {};
  const lefts = marks.map(({ x }) =>
    min == null || max == null || x < min || x > max
      ? null
      : Math.round(u.over.offsetLeft + u.root.offsetLeft + u.valToPos(x, "x")),
  );
  return lefts.length === before.length && lefts.every((left, i) => left === before[i]) ? before : lefts;
}

export function Marks({ marks, lefts }: { marks: readonly ChartMark[]; lefts: readonly (number | null)[] }) {
  const rows = stacked(lefts);
  return marks.map((mark, i) => {
    const left = lefts[i] ?? null;
    if (left === null) return null;
    return (
      <span
        key={mark.id}
        className={cx("chart-mark", `chart-mark-${mark.tone}`)}
        style={{ left, top: rows[i]! * SIZE }}
      >
        <Tip text={marked(mark.label)}>
          <button type="button" aria-label={mark.label}>
            <Icon name={mark.icon} size={11} />
          </button>
        </Tip>
      </span>
    );
  });
}

/** Marks that would cover each other stand below each other, as far as there is room. */
function stacked(lefts: readonly (number | null)[]): number[] {
  const ends: number[] = [];
  return lefts.map((left) => {
    if (left === null) return 0;
    const free = ends.findIndex((end) => Math.abs(left - end) >= SIZE);
    const row = free < 0 ? Math.min(ends.length, MOST_ROWS - 1) : free;
    ends[row] = left;
    return row;
  });
}
