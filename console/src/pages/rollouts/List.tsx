// The list on the left: step → group → samples, or one flat list when it is ordered or searched.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { detailsQuery, type Item, type Outline, type StepOutline, stepQuery } from "../../api/rollouts";
import { shownStep, stepName } from "../../api/steps";
import { cx, ErrorNote, format, Icon, Plain } from "../../ui";
import { advantageColour, type Range, rewardColour, tokenColour } from "./colour";
import type { View } from "./filters";
import { type Row, type Rows, useRows } from "./sections";

const HEIGHT = 30;

type Props = {
  run: string;
  view: View;
  outline: Outline | undefined;
  scale: Scale;
  onOpen: (item: Item, beside: boolean) => void;
  /** Gives the keyboard's way through the list. */
  onRows: (rows: Rows) => void;
};

export type Scale = { reward: Range; tokens: number };

export function List({ run, view, outline, scale, onOpen, onRows }: Props) {
  const [folded, setFolded] = useState<ReadonlySet<number>>(new Set());
  const [seen, setSeen] = useState<[number, number]>([0, 60]);
  const rows = useRows(run, view, outline, folded, seen[0], seen[1]);
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.count,
    getScrollElement: () => scroller.current,
    estimateSize: () => HEIGHT,
    overscan: 10,
  });
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    // Fast scrolling passes many steps: only where it rests is loaded.
    const timer = setTimeout(() => setSeen((now) => (now[0] === first && now[1] === last ? now : [first, last])), 60);
    return () => clearTimeout(timer);
  }, [first, last]);
  onRows(rows);
  useOpenInView(run, view, rows, (index) => scroller.current && bring(scroller.current, index));
  useAnchor(outline, rows, scroller);
  const toggle = useCallback((step: number) => {
    setFolded((now) => {
      const next = new Set(now);
      if (!next.delete(step)) next.add(step);
      return next;
    });
  }, []);
  const top = rows.at(first);
  const step =
    top.kind === "sample" || top.kind === "group" || top.kind === "waiting"
      ? rows.sections[rows.sectionAt(first)]?.step
      : undefined;
  const total = outline?.steps.reduce((sum, each) => sum + each.rollouts, 0) ?? 0;
  return (
    <>
      {rows.error ? <ErrorNote error={rows.error} /> : <Count view={view} rows={rows} total={total} />}
      <div className="ro-list" ref={scroller} tabIndex={0} role="region" aria-label="Rollouts">
        {step && !view.text && (
          <div className="ro-sticky">
            <StepRow mode={view.filters.mode} step={step} scale={scale} folded={false} onToggle={toggle} />
          </div>
        )}
        <div
          className="ro-rows"
          style={{ height: virtual.getTotalSize(), marginTop: step && !view.text ? -HEIGHT : 0 }}
        >
          {items.map((item) => (
            <div key={item.index} className="ro-row" style={{ transform: `translateY(${item.start}px)` }}>
              <Line row={rows.at(item.index)} view={view} scale={scale} onOpen={onOpen} onToggle={toggle} />
            </div>
          ))}
        </div>
      </div>
    </>
  );
}

function Line({
  row,
  view,
  scale,
  onOpen,
  onToggle,
}: {
  row: Row;
  view: View;
  scale: Scale;
  onOpen: Props["onOpen"];
  onToggle: (step: number) => void;
}) {
  if (row.kind === "step")
    return <StepRow mode={view.filters.mode} step={row.step} folded={row.folded} scale={scale} onToggle={onToggle} />;
  if (row.kind === "group")
    return <GroupRow id={row.id} text={row.text} count={row.count} mean={row.mean} range={scale.reward} />;
  if (row.kind === "waiting") return <span className="ro-waiting" />;
  const { item } = row;
  return (
    <Sample
      item={item}
      words={row.words}
      flat={row.flat}
      open={item.id === view.open}
      beside={item.id === view.beside}
      component={view.filters.component}
      scale={scale}
      onOpen={onOpen}
    />
  );
}

const StepRow = memo(function StepRow({
  mode,
  step,
  folded,
  scale,
  onToggle,
}: {
  mode: string;
  step: StepOutline;
  folded: boolean;
  scale: Scale;
  onToggle: (step: number) => void;
}) {
  return (
    <button type="button" className="ro-step" aria-expanded={!folded} onClick={() => onToggle(step.step)}>
      <Icon name="chevron" className={cx("fold-mark", !folded && "fold-open")} size={13} />
      <strong>{stepName(mode, step.step)}</strong>
      <span className="muted num">{format.compact(step.rollouts)}</span>
      {step.failed > 0 && (
        <span className="ro-flag bad" title={`${format.plural(step.failed, "rollout")} failed`}>
          {step.failed} failed
        </span>
      )}
      <Dot
        colour={rewardColour(step.meanReward, scale.reward)}
        text={format.reward(step.meanReward)}
        title="Mean reward of this step"
      />
    </button>
  );
});

const GroupRow = memo(function GroupRow({
  id,
  text,
  count,
  mean,
  range,
}: {
  id: string;
  text: string;
  count: number;
  mean: number | null;
  range: Range;
}) {
  return (
    <div className="ro-group" title={`${text.slice(0, 400)}\n\n${format.plural(count, "sample")} of example ${id}`}>
      <Plain text={text.slice(0, 120) || id} className="clip grow" />
      <Dot colour={rewardColour(mean, range)} text={format.reward(mean)} title="Mean reward of the group" />
    </div>
  );
});

type SampleProps = {
  item: Item;
  words?: string;
  flat: boolean;
  open: boolean;
  beside: boolean;
  /** Shown beside the reward: the list is ordered by it. */
  component?: string;
  scale: Scale;
  onOpen: Props["onOpen"];
};

const Sample = memo(function Sample({ item, words, flat, open, beside, component, scale, onOpen }: SampleProps) {
  const part = component === undefined ? null : (item.rewards[component] ?? null);
  return (
    <button
      type="button"
      id={`ro-${item.id}`}
      aria-current={open || undefined}
      className={cx("ro-sample", flat && "ro-sample-flat", open && "ro-open", beside && "ro-beside")}
      onClick={(event) => onOpen(item, event.shiftKey)}
      title={
        flat
          ? `${item.promptText.slice(0, 300)}\n\n${stepName(item.mode, item.step)}, sample ${item.sample}`
          : undefined
      }
    >
      {flat ? (
        <Plain text={(words ?? item.promptText).slice(0, 140)} className="clip grow" />
      ) : (
        <span className="muted num ro-number">#{item.sample}</span>
      )}
      {flat && <span className="muted num ro-small">step {shownStep(item.mode, item.step)}</span>}
      <Flags item={item} short={flat} />
      {flat && component !== undefined && (
        <Dot colour={rewardColour(part, scale.reward)} text={format.reward(part)} title={component} />
      )}
      <Dot
        colour={rewardColour(item.totalReward, scale.reward)}
        text={format.reward(item.totalReward)}
        title="Reward"
      />
      {!flat && (
        <Dot
          colour={advantageColour(item.advantage)}
          text={item.advantage === null ? "" : format.gain(item.advantage, 2)}
          title="Advantage over its group"
        />
      )}
      {!flat && (
        <Dot
          colour={tokenColour(item.tokens, scale.tokens)}
          text={format.compact(item.tokens)}
          title="Tokens written"
        />
      )}
    </button>
  );
});

function Flags({ item, short }: { item: Item; short: boolean }) {
  if (item.errorType)
    return (
      <span className="ro-flag bad" title={item.errorType}>
        error
      </span>
    );
  if (item.discarded)
    return (
      <span className="ro-flag warn" title={`Left out of training: ${item.discarded}`}>
        {short ? "out" : "left out"}
      </span>
    );
  if (item.termination !== "finished")
    return (
      <span className="ro-flag muted" title={item.termination}>
        cut
      </span>
    );
  return null;
}

function Dot({ colour, text, title }: { colour: string; text: string; title: string }) {
  return (
    <span className="ro-dot" title={title}>
      {text !== "" && <i style={{ background: colour }} aria-hidden="true" />}
      <span className="num">{text}</span>
    </span>
  );
}

function Count({ view, rows, total }: { view: View; rows: Rows; total: number }) {
  const searched = view.text ? rows.searched : undefined;
  const text = searched
    ? searched.busy
      ? "Searching…"
      : `${searched.found ? format.plural(searched.found, "rollout") : "Nothing"} found${searched.done < searched.total ? `; searched ${format.compact(searched.done)} of ${format.compact(searched.total)}` : ""}`
    : total === 0
      ? "No rollout matches these filters."
      : format.plural(total, "rollout");
  return (
    <div className="ro-count small muted" role="status">
      <span>{text}</span>
      {view.order === "newest" && !view.text && (
        <span className="ro-columns-names" aria-hidden="true">
          <span>reward</span>
          <span>advantage</span>
          <span>tokens</span>
        </span>
      )}
    </div>
  );
}

/** Bring the open rollout into view when another is opened, not whenever the list changes. Its step is loaded for it. */
function useOpenInView(run: string, view: View, rows: Rows, show: (index: number) => void): void {
  const shown = useRef("");
  const client = useQueryClient();
  const { open, filters, order, text } = view;
  const details = useQuery({ ...detailsQuery(run, open), enabled: open !== "", notifyOnChangeProps: ["data"] }).data;
  const step = details?.id === open && order === "newest" && !text ? details.step : undefined;
  const [, setLoaded] = useState("");
  useEffect(() => {
    if (step === undefined || shown.current === open) return;
    client.ensureQueryData(stepQuery(run, filters, step)).then(
      () => setLoaded(open),
      () => undefined,
    );
  }, [client, run, filters, step, open]);
  useEffect(() => {
    if (!open || shown.current === open) return;
    const index = rows.find(open);
    if (index < 0) return;
    shown.current = open;
    show(index);
  });
}

/** Scroll a row into view, below the step that sticks to the top. */
function bring(box: HTMLElement, index: number): void {
  const top = index * HEIGHT;
  if (top - HEIGHT < box.scrollTop) box.scrollTop = top - 3 * HEIGHT;
  else if (top + HEIGHT > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight + 3 * HEIGHT;
}

/** New steps come in at the top: whoever reads further down keeps the place. */
function useAnchor(outline: Outline | undefined, rows: Rows, scroller: React.RefObject<HTMLDivElement | null>): void {
  const before = useRef<{ step: number; first: number } | null>(null);
  useLayoutEffect(() => {
    const box = scroller.current;
    const kept = before.current;
    if (box && kept && box.scrollTop > HEIGHT) {
      const now = rows.sections.find((section) => section.step?.step === kept.step);
      if (now && now.first > kept.first) box.scrollTop += (now.first - kept.first) * HEIGHT;
    }
    const top = rows.sections[0];
    before.current = top?.step && outline ? { step: top.step.step, first: 0 } : null;
  }, [outline, rows.sections, scroller]);
}
