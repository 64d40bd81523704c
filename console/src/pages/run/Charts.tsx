// The charts of a run: reward, solved, max@k and length first, everything else folded below; all under one cursor.
import { useMemo } from "react";
import { useRuns } from "../../api/queries";
import { type Scalars, useScalars, useScalarsOf } from "../../api/scalars";
import { wireStep } from "../../api/steps";
import { useTraining } from "../../api/training";
import { Chart, type Line, type View } from "../../chart/Chart";
import type { ChartMark } from "../../chart/Marks";
import { MAIN, type Metric, metric, SECTIONS, sections } from "../../chart/metrics";
import { clock, nearest, type Series, secondsAt } from "../../chart/series";
import {
  Button,
  Check,
  Chip,
  Empty,
  ErrorNote,
  Fold,
  format,
  Plain,
  SearchBox,
  Segments,
  Select,
  Skeleton,
  useGo,
  useSearch,
  useStored,
} from "../../ui";
import { beginning, type Told } from "../runs/status";
import { MOST_BESIDE, useRun } from "./context";
import { Differences } from "./Differences";
import { Interventions } from "./Interventions";
import { doing, MARK_WORDS } from "./words";

type Mode = "train" | "eval";
type Source = {
  id: string;
  label: string;
  scalars: Scalars | undefined;
  color: string;
  /** How long the run had worked at each step. */
  times: Series;
  aside?: boolean;
  dots?: boolean;
};

/** `story` comes after the first charts. */
export function RunCharts({ mode, story }: { mode: Mode; story?: React.ReactNode }) {
  const { id, run, live, tabHref } = useRun();
  const search = useSearch();
  // Looking closer at a part of a long run needs every point of it.
  const whole = search.get("range") !== "";
  const train = useScalars(id, "train", whole);
  const held = useScalars(id, "eval", whole);
  const warm = useScalars(id, "warm_start");
  const others = useMemo(() => beside(search.get("with")), [search]);
  const compared = useScalarsOf(others, mode);
  const own = mode === "train" ? train : held;
  const overlay = search.get("overlay", "on") === "on";
  const sources = useSources(mode, overlay, train.data, held.data, warm.data, compared, useNames(others));
  const time = search.get("x") === "time";
  const view = useView(sources[0], mode, tabHref, time);
  if (own.isError) return <ErrorNote error={own.error} onRetry={() => own.refetch()} />;
  if (own.isPending) return <Waiting />;
  if (!own.data?.size)
    return (
      <>
        <Nothing mode={mode} live={live} run={run} />
        {story}
      </>
    );
  return (
    <div className="stack">
      <Tools view={view} mode={mode} others={others} />
      {others.length > 0 && <Differences others={others} />}
      <Body scalars={own.data} sources={sources} view={view} pattern={search.get("metric")} story={story} />
    </div>
  );
}

function beside(ids: string): string[] {
  return [...new Set(ids.split(",").filter(Boolean))].slice(0, MOST_BESIDE);
}

function useNames(ids: readonly string[]): string[] {
  const runs = useRuns({}, { once: true, enabled: useRun().run.isOwner });
  return useMemo(() => ids.map((id) => runs.data?.find((run) => run.id === id)?.name ?? "other run"), [runs.data, ids]);
}

function useSources(
  mode: Mode,
  overlay: boolean,
  train: Scalars | undefined,
  held: Scalars | undefined,
  warm: Scalars | undefined,
  compared: readonly (Scalars | undefined)[],
  names: readonly string[],
): Source[] {
  return useMemo(() => {
    const times = worked(train);
    const trained = { id: "train", label: "train", scalars: train, color: "--series-1", times, aside: mode === "eval" };
    const tested = { id: "eval", label: "eval", scalars: held, color: "--series-2", times, dots: true };
    const [main, beside] = mode === "train" ? [trained, tested] : [tested, trained];
    const own: Source[] = overlay ? [main, beside] : [main];
    // Else training would seem to have brought what the warm start did.
    if (warm?.size && own.includes(tested))
      own.push({ ...tested, id: "warm", label: "eval after the warm start", scalars: warm, color: "--series-8" });
    const others = compared.map((scalars, index) => ({
      id: `with ${index}`,
      label: names[index] ?? "",
      scalars,
      color: index === 0 ? "--other" : `--series-${index + 2}`,
      times: worked(scalars),
      aside: true,
    }));
    return [...own, ...others];
  }, [mode, overlay, train, held, warm, compared, names]);
}

/** What the trainer did on the way, where the charts show it. */
function useMarks(time: boolean, times: Series | undefined): ChartMark[] {
  const { marks } = useTraining(useRun().id);
  return useMemo(
    () =>
      marks.map(({ id, kind, step, message }) => ({
        id: String(id),
        x: time && times ? secondsAt(times, step) : step,
        label: `Step ${step.toLocaleString("en-US")}, ${MARK_WORDS[kind].word}: ${message}`,
        ...MARK_WORDS[kind],
      })),
    [marks, time, times],
  );
}

/** How the charts are looked at: what the address says, and the smoothing this browser remembers. */
function useView(source: Source | undefined, mode: Mode, tabHref: ReturnType<typeof useRun>["tabHref"], time: boolean) {
  const search = useSearch();
  const go = useGo();
  const [smoothing, setSmoothing] = useStored("smoothing", 0.6);
  const range = search.get("range");
  return useMemo(() => {
    const [from, to] = range.split("~").map(Number);
    const view: View = {
      smoothing,
      log: search.get("log") === "on",
      outliers: search.get("outliers", "on") === "on",
      time,
      range: range && Number.isFinite(from) && Number.isFinite(to) ? [from!, to!] : null,
      onRange: (next) => search.set({ range: next ? next.map((x) => Number(x.toFixed(2))).join("~") : null }),
      onPick: (x) => {
        const steps = source?.scalars?.get(MAIN[0]!)?.x ?? new Float64Array();
        const times = time ? source?.times : null;
        const step = steps[nearest(times ? steps.map((each) => secondsAt(times, each)) : steps, x)];
        if (step !== undefined) go(tabHref("rollouts", { mode, step: wireStep(mode, step) }));
      },
    };
    return { ...view, setSmoothing, search };
  }, [smoothing, setSmoothing, search, source, mode, tabHref, time, range, go]);
}

type FullView = ReturnType<typeof useView>;

/** How long the run had worked at each step: what sampling and updating took, added up. */
function worked(scalars: Scalars | undefined): Series {
  return clock(["seconds/sample", "seconds/update"].flatMap((key) => scalars?.get(key) ?? []));
}

function Body({
  scalars,
  sources,
  view,
  pattern,
  story,
}: {
  scalars: Scalars;
  sources: Source[];
  view: FullView;
  pattern: string;
  story: React.ReactNode;
}) {
  const matches = useMemo(() => filter(pattern), [pattern]);
  const groups = useMemo(
    () => sections([...scalars.keys()].filter((key) => matches(key, metric(key).name))),
    [scalars, matches],
  );
  const main = MAIN.filter((key) => scalars.has(key) && matches(key, metric(key).name)).map(metric);
  const rest = (Object.keys(SECTIONS) as (keyof typeof SECTIONS)[]).filter((section) => groups.has(section));
  if (main.length + rest.length === 0)
    return (
      <Empty
        title="No metric matches"
        actions={<Button onClick={() => view.search.set({ metric: null })}>Show all</Button>}
      />
    );
  return (
    <>
      <Grid metrics={main} sources={sources} view={view} />
      <Interventions />
      {story}
      {rest.map((section) => (
        <Fold
          key={`${section} ${pattern !== ""}`}
          title={SECTIONS[section]}
          aside={preview(groups.get(section)!)}
          open={
            pattern !== "" ||
            section === "environments" ||
            (section === "components" && groups.get(section)!.length <= 3)
          }
        >
          <Grid metrics={groups.get(section)!} sources={sources} view={view} small />
        </Fold>
      ))}
    </>
  );
}

function preview(metrics: Metric[]): string {
  const names = metrics.slice(0, 4).map((one) => one.name);
  return names.join(" · ") + (metrics.length > 4 ? ` · ${metrics.length - 4} more` : "");
}

function filter(pattern: string): (key: string, name: string) => boolean {
  if (!pattern) return () => true;
  try {
    const found = new RegExp(pattern, "i");
    return (key, name) => found.test(key) || found.test(name);
  } catch {
    const text = pattern.toLowerCase();
    return (key, name) => key.toLowerCase().includes(text) || name.toLowerCase().includes(text);
  }
}

function Grid({
  metrics,
  sources,
  view,
  small,
}: {
  metrics: Metric[];
  sources: Source[];
  view: FullView;
  small?: boolean;
}) {
  return (
    <div className={small ? "chart-grid chart-grid-3" : "chart-grid"}>
      {metrics.map((one) => (
        <MetricChart key={one.key} metric={one} sources={sources} view={view} small={small} />
      ))}
    </div>
  );
}

function MetricChart({
  metric: one,
  sources,
  view,
  small,
}: {
  metric: Metric;
  sources: Source[];
  view: FullView;
  small?: boolean;
}) {
  const lines = useMemo(
    () =>
      sources.flatMap((source): Line[] => {
        const series = source.scalars?.get(one.key);
        if (!series?.x.length) return [];
        return [{ ...source, series: view.time ? timed(series, source.times) : series }];
      }),
    [sources, one.key, view.time],
  );
  const marks = useMarks(view.time, sources[0]?.times);
  const info = (
    <>
      {one.about && <>{one.about} </>}
      <span className="mono">{one.key}</span>
    </>
  );
  return (
    <Chart
      title={<Plain text={one.name} />}
      label={one.name}
      info={info}
      lines={lines}
      view={view}
      group="run"
      height={small ? 150 : 208}
      min={one.min}
      max={one.max}
      unit={one.max === 1 ? places : format.number}
      marks={one.key === MAIN[0] ? marks : undefined}
    />
  );
}

/** Shares and rewards all have three places: they stand below each other. */
const places = (value: number) => value.toFixed(3);

function timed(series: Series, times: Series): Series {
  return { ...series, x: series.x.map((step) => secondsAt(times, step)) };
}

function Tools({ view, mode, others: chosen }: { view: FullView; mode: Mode; others: readonly string[] }) {
  const { id, run } = useRun();
  const runs = useRuns({}, { once: true, enabled: run.isOwner });
  const { search } = view;
  const others = (runs.data ?? [])
    .filter((each) => each.id !== id && each.latestStep !== null && !chosen.includes(each.id))
    .sort((a, b) => Number(b.pinned) - Number(a.pinned));
  const name = (each: string) => runs.data?.find((other) => other.id === each)?.name ?? "other run";
  return (
    <div className="chart-tools">
      <label>
        Smoothing
        <input
          type="range"
          min={0}
          max={0.99}
          step={0.01}
          value={view.smoothing}
          onChange={(event) => view.setSmoothing(Number(event.target.value))}
        />
        <span className="num">{view.smoothing.toFixed(2)}</span>
      </label>
      <Segments
        label="Horizontal axis"
        value={view.time ? "time" : "step"}
        onChange={(value) => search.set({ x: value === "time" ? value : null, range: null })}
        options={[
          { value: "step", label: "Step" },
          { value: "time", label: "Time", title: "Working time" },
        ]}
      />
      <Check
        label="Log"
        checked={view.log}
        onChange={(event) => search.set({ log: event.target.checked ? "on" : null })}
      />
      <Check
        label="Outliers"
        checked={view.outliers}
        onChange={(event) => search.set({ outliers: event.target.checked ? null : "off" })}
      />
      <Check
        label={mode === "train" ? "Eval" : "Train"}
        checked={search.get("overlay", "on") === "on"}
        onChange={(event) => search.set({ overlay: event.target.checked ? null : "off" })}
      />
      {chosen.map((each) => (
        <Chip
          key={each}
          label={name(each)}
          onRemove={() => search.set({ with: chosen.filter((other) => other !== each).join(",") })}
        >
          <Plain text={name(each).slice(0, 60)} className="clip" />
        </Chip>
      ))}
      {others.length > 0 && chosen.length < MOST_BESIDE && (
        <Select
          aria-label="Compare with a run"
          value=""
          onChange={(event) => search.set({ with: [...chosen, event.target.value].join(",") })}
        >
          <option value="">{chosen.length ? "Add another…" : "Compare with…"}</option>
          {others.slice(0, 100).map((run) => (
            <option key={run.id} value={run.id}>
              {run.pinned ? "★ " : ""}
              {run.name}
            </option>
          ))}
        </Select>
      )}
      <SearchBox
        label="Filter metrics"
        placeholder="Filter metrics"
        value={search.get("metric")}
        onChange={(event) => search.set({ metric: event.target.value })}
      />
      {view.range && (
        <Button size="small" onClick={() => view.onRange(null)}>
          Reset zoom
        </Button>
      )}
    </div>
  );
}

function Waiting() {
  return (
    <div className="chart-grid">
      {MAIN.map((key) => (
        <Skeleton key={key} height={246} />
      ))}
    </div>
  );
}

function Nothing({ mode, live, run }: { mode: Mode; live: boolean; run: Told }) {
  const training = useTraining(useRun().id);
  if (live) {
    const what = mode === "train" ? "The first step" : "The first evaluation";
    const first = training.plan ? null : doing(training) && "Training has not begun yet";
    return (
      <Empty icon="runs" title={beginning(run) ?? first ?? `${what} is under way`}>
        {what} appears here as soon as it is done.
      </Empty>
    );
  }
  return (
    <Empty icon="runs" title={mode === "train" ? "The run ended before its first step" : "Nothing was evaluated"}>
      {mode === "train"
        ? run.statusReason || "Its logs may say why."
        : "Held-out rows are evaluated when the run has an eval dataset and eval.every is above 0."}
    </Empty>
  );
}
