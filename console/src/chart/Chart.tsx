// One chart: lines with a faint raw and a bold smoothed form, extremes as a band, one cursor for all charts of a page.
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./chart.css";
import { useTheme } from "../app/theme";
import { duration, number } from "../ui/format";
import { Info } from "../ui/Popover";
import { type ChartMark, Marks, places } from "./Marks";
import { type Drawn, draw, frame, nearest, type Series, smooth } from "./series";

export type Line = {
  id: string;
  label: string;
  series: Series;
  /** The name of a colour in tokens.css. */
  color: string;
  /** Thin and without its raw form: something to compare with. */
  aside?: boolean;
  /** Few points, worth seeing one by one. */
  dots?: boolean;
};

export type View = {
  smoothing: number;
  log: boolean;
  outliers: boolean;
  /** x is seconds since the start, else steps. */
  time: boolean;
  range: [number, number] | null;
  onRange: (range: [number, number] | null) => void;
  /** A click near a point. */
  onPick?: (x: number) => void;
};

export type ChartProps = {
  title: ReactNode;
  /** The title for those who do not see it, where it is more than text. */
  label?: string;
  info?: ReactNode;
  lines: Line[];
  view: View;
  height?: number;
  group: string;
  min?: number;
  max?: number;
  /** Always show the lowest value there can be. */
  grounded?: boolean;
  unit?: (value: number) => string;
  /** What happened at some x, above the lines. */
  marks?: readonly ChartMark[];
};

const NO_MARKS: readonly ChartMark[] = [];

export function Chart({
  title,
  label = typeof title === "string" ? title : "Chart",
  info,
  lines,
  view,
  height = 190,
  group,
  min,
  max,
  grounded,
  unit = number,
  marks = NO_MARKS,
}: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const width = useWidth(box);
  const { shown: theme } = useTheme();
  const [cursor, setCursor] = useState<number | null>(null);
  const [focused, setFocused] = useState(false);
  const [marked, setMarked] = useState<readonly (number | null)[]>([]);
  const smoothed = useMemo(
    () => lines.map((line) => smooth(line.series, line.dots ? 0 : view.smoothing)),
    [lines, view.smoothing],
  );
  const drawn = useMemo(
    () => lines.map((line, i) => draw(line.series, smoothed[i]!, view.range, Math.max(60, Math.floor(width / 1.5)))),
    [lines, smoothed, view.range, width],
  );
  const current = useRef({ drawn, lines, view, marks });
  current.current = { drawn, lines, view, marks };
  const shape = lines.map((line) => `${line.id}:${line.color}:${line.aside}:${line.dots}`).join("|");
  // Made anew only when what it is made of changes.
  useEffect(() => {
    if (!box.current || width === 0) return;
    const options = make({
      current,
      width,
      height,
      group,
      lines,
      time: view.time,
      log: view.log,
      bounds: { min, max, grounded },
      onCursor: setCursor,
      onDraw: (u) => setMarked((before) => places(u, current.current.marks, before)),
      dark: theme === "dark",
    });
    plot.current = new uPlot(options, data(current.current.drawn, view.log), box.current);
    return () => {
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, theme, view.time, view.log, view.outliers, height, group, width === 0, min, max, grounded]);
  // The range alone moves the frame too.
  useEffect(() => {
    plot.current?.setData(data(drawn, view.log));
  }, [drawn, view.log, view.range, marks]);
  useEffect(() => {
    if (width && plot.current && plot.current.width !== width) plot.current.setSize({ width, height });
  }, [width, height]);
  return (
    <figure className="chart">
      <figcaption className="chart-head">
        <span className="chart-title">
          {title}
          {info && <Info label="About this chart">{info}</Info>}
        </span>
        <Legend lines={lines} smoothed={smoothed} cursor={cursor} time={view.time} unit={unit} spoken={focused} />
      </figcaption>
      <div className="chart-area">
        <div
          ref={box}
          className="chart-box"
          style={{ height }}
          tabIndex={0}
          role="group"
          aria-label={`${label}: arrow keys move along the curve${view.onPick ? ", Enter opens the rollouts of a step" : ""}`}
          onFocus={() => setFocused(true)}
          onBlur={() => {
            setFocused(false);
            plot.current?.setCursor(NOWHERE, true);
          }}
          onKeyDown={(event) => plot.current && steer(event, plot.current, current.current, cursor)}
        />
        <Marks marks={marks} lefts={marked} />
      </div>
    </figure>
  );
}

/** The values at the cursor, or the last ones: as they were measured, so that they agree with the head of the page. */
function Legend({
  lines,
  smoothed,
  cursor,
  time,
  unit,
  spoken,
}: {
  lines: Line[];
  smoothed: Float64Array[];
  cursor: number | null;
  time: boolean;
  unit: (value: number) => string;
  /** Read out as the cursor moves: it is moved by keys. */
  spoken: boolean;
}) {
  return (
    <span className="chart-legend" aria-live={spoken ? "polite" : undefined}>
      {cursor !== null && (
        <span className="muted">{time ? duration(cursor) : `step ${Math.round(cursor).toLocaleString("en-US")}`}</span>
      )}
      {lines.map((line, i) => {
        const { x, y } = line.series;
        const index = cursor === null ? x.length - 1 : nearest(x, cursor);
        const shown = (value: number | undefined) => (value === undefined || Number.isNaN(value) ? "–" : unit(value));
        const soft = smoothed[i]?.[index];
        return (
          <span key={line.id} className="chart-key" title={`${y[index]}; smoothed ${soft}`}>
            <i style={{ background: `var(${line.color})` }} />
            <span className="muted">{line.label}</span>
            <b className="num">{shown(y[index])}</b>
          </span>
        );
      })}
    </span>
  );
}

function useWidth(box: React.RefObject<HTMLDivElement | null>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!box.current) return;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [box]);
  return width;
}

/** Lines on one x: for each the raw and the smoothed values. */
function data(drawn: Drawn[], log: boolean): uPlot.AlignedData {
  const positive = (values: (number | null)[]) =>
    log ? values.map((value) => (value !== null && value > 0 ? value : null)) : values;
  if (drawn.length === 0) return [[]];
  const tables = drawn.map((one) => [one.x, positive(one.raw), positive(one.smooth)] as uPlot.AlignedData);
  return tables.length === 1 ? tables[0]! : uPlot.join(tables);
}

type Make = {
  current: { current: { drawn: Drawn[]; lines: Line[]; view: View } };
  width: number;
  height: number;
  group: string;
  lines: Line[];
  time: boolean;
  log: boolean;
  bounds: Bounds;
  dark: boolean;
  onCursor: (x: number | null) => void;
  onDraw: (u: uPlot) => void;
};

function make({ current, width, height, group, lines, time, log, bounds, onCursor, onDraw }: Make): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const axis = {
    stroke: color("--muted"),
    font: "11px Inter, system-ui, sans-serif",
    grid: { stroke: color("--grid"), width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height,
    padding: [10, 8, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      points: { size: 6, width: 2, fill: color("--panel") },
      drag: { x: true, y: false, setScale: false },
      sync: { key: group, scales: ["x", null] },
      bind: { dblclick: () => () => (current.current.view.onRange(null), null) },
    },
    scales: {
      x: {
        time: false,
        range: (_, low, high) => current.current.view.range ?? (low === high ? [low - 1, high + 1] : [low, high]),
      },
      y: { distr: log ? 3 : 1, range: (_, low, high) => yRange(current.current, [low, high], log, bounds) },
    },
    axes: [
      {
        ...axis,
        size: 26,
        gap: 6,
        space: 70,
        incrs: time ? SECONDS : STEPS,
        values: (_, splits) => splits.map((x) => (time ? clockTime(x) : x.toLocaleString("en-US"))),
      },
      {
        ...axis,
        size: 48,
        gap: 6,
        space: 34,
        values: (_, splits) => splits.map((y) => (y === null ? "" : number(y, 3))),
      },
    ],
    series: [{}, ...lines.flatMap((line) => strokes(line, color(line.color)))],
    hooks: {
      drawClear: [(u) => band(u, current.current, color, log)],
      draw: [onDraw],
      setCursor: [
        (u) => onCursor(u.cursor.left !== undefined && u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null),
      ],
      setSelect: [(u) => selected(u, current.current.view)],
      ready: [(u) => clicks(u, current)],
    },
  };
}

const STEPS = [1, 2, 5]
  .flatMap((each) => [0, 1, 2, 3, 4, 5, 6].map((power) => each * 10 ** power))
  .sort((a, b) => a - b);
const SECONDS = [
  1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
];

/** A round time on an axis: 20 s, 5 m, 1:30 h. */
function clockTime(seconds: number): string {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600)
    return seconds % 60
      ? `${Math.floor(seconds / 60)}:${String(Math.round(seconds % 60)).padStart(2, "0")} m`
      : `${seconds / 60} m`;
  return seconds % 3600
    ? `${Math.floor(seconds / 3600)}:${String(Math.round((seconds % 3600) / 60)).padStart(2, "0")} h`
    : `${seconds / 3600} h`;
}

function strokes(line: Line, color: string): uPlot.Series[] {
  const raw = { stroke: `${color}${line.aside ? "00" : "55"}`, width: 1, spanGaps: true, points: { show: false } };
  const bold = {
    stroke: color,
    width: line.aside ? 1.25 : 2,
    spanGaps: true,
    points: { show: line.dots || alone, size: 5, fill: color, stroke: color },
  };
  return [raw, bold];
}

/** Whether a line has one point only: there is nothing to draw but a dot. */
function alone(plot: uPlot, index: number): boolean {
  let count = 0;
  for (const value of plot.data[index] ?? []) {
    if (typeof value === "number" && ++count > 1) return false;
  }
  return count === 1;
}

type Bounds = { min?: number; max?: number; grounded?: boolean };

function yRange(
  { drawn, view }: { drawn: Drawn[]; view: View },
  [low, high]: [number, number],
  log: boolean,
  { min, max, grounded: always }: Bounds,
): [number, number] {
  const all = drawn.flatMap((one) => (one.bucketed ? [...one.low, ...one.high] : one.raw));
  const found = frame(log ? all.filter((value) => value !== null && value > 0) : all, view.outliers) ?? [
    low ?? 0,
    high ?? 1,
  ];
  if (log) return [found[0] / 1.3, found[1] * 1.3];
  const span = found[1] - found[0];
  const gap = (span || Math.abs(found[1]) || 1) * 0.08;
  if (view.range) return [found[0] - gap, found[1] + gap];
  // Values with a natural end show it: a curve near 1 should look near 1.
  const grounded = min !== undefined && found[0] >= min && (always || span === 0 || found[0] - min < span * 4);
  const capped = max !== undefined && found[1] <= max && found[1] > max / 2;
  const bottom = grounded ? min : found[0] - gap;
  const top = capped ? max + (max - bottom) * 0.04 : found[1] + (span === 0 && grounded ? found[1] * 0.3 || 1 : gap);
  return [bottom, top];
}

/** The extremes of each bucket, behind everything. */
function band(
  u: uPlot,
  { drawn, lines }: { drawn: Drawn[]; lines: Line[] },
  color: (name: string) => string,
  log: boolean,
): void {
  drawn.forEach((one, i) => {
    const line = lines[i];
    if (!line || line.aside || !one.bucketed) return;
    const { ctx } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    ctx.beginPath();
    const floor = u.scales.y!.min ?? 0;
    const y = (value: number) => u.valToPos(log ? Math.max(value, floor) : value, "y", true);
    const edge = (j: number, value: number) => {
      if (Number.isFinite(value)) ctx.lineTo(u.valToPos(one.x[j]!, "x", true), y(value));
    };
    for (let j = 0; j < one.x.length; j++) edge(j, one.high[j]!);
    for (let j = one.x.length - 1; j >= 0; j--) edge(j, one.low[j]!);
    ctx.closePath();
    ctx.globalAlpha = 0.13;
    ctx.fillStyle = color(line.color);
    ctx.fill();
    ctx.restore();
  });
}

function selected(u: uPlot, view: View): void {
  const { left, width } = u.select;
  if (width < 6) return;
  const range: [number, number] = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  view.onRange(range);
}

/** A click that is no drag and no double click picks the nearest point. */
function clicks(u: uPlot, current: { current: { view: View } }): void {
  let down = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  u.over.addEventListener("mousedown", (event) => {
    down = event.clientX;
  });
  u.over.addEventListener("dblclick", () => clearTimeout(timer));
  u.over.addEventListener("click", (event) => {
    const { onPick } = current.current.view;
    if (!onPick || Math.abs(event.clientX - down) > 3) return;
    const x = u.posToVal(event.clientX - u.over.getBoundingClientRect().left, "x");
    clearTimeout(timer);
    timer = setTimeout(() => onPick(x), 260);
  });
}

const NOWHERE = { left: -10, top: -10 };

/** Move the cursor from point to point by keys, and pick the one it is at. */
function steer(
  event: React.KeyboardEvent,
  u: uPlot,
  { lines, view }: { lines: Line[]; view: View },
  cursor: number | null,
): void {
  const x = lines[0]?.series.x ?? new Float64Array();
  const here = cursor === null ? null : nearest(x, cursor);
  if (event.key === "Enter" && here !== null && view.onPick) view.onPick(x[here]!);
  const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
  const to =
    event.key === "Home" ? 0 : event.key === "End" ? x.length - 1 : by && (here ?? (by > 0 ? -1 : x.length)) + by;
  if (event.key === "Escape") u.setCursor(NOWHERE, true);
  if (to === undefined || !x.length) return;
  event.preventDefault();
  u.setCursor({ left: u.valToPos(x[Math.max(0, Math.min(x.length - 1, to))]!, "x"), top: 1 }, true);
}
