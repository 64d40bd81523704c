// Whether a run learned, and whether it may cheat: what its numbers say, and how sure they are of it.
import type { Schemas } from "../../api/client";
import type { Scalars } from "../../api/scalars";
import type { Tone } from "../../ui";

type RunEvent = Schemas["RunEvent"];

/** A mean with its standard error, the step it was measured after, and the share that was solved. */
export type Mean = { value: number; error: number; step: number; solved?: number; warm?: boolean };
export type Verdict = {
  word: string;
  tone: Tone;
  from: number;
  to: number;
  /** Of the evaluation that `to` is from. */
  solved?: number;
  heldOut: boolean;
  fell: number | null;
  /** A gain that is no more than chance may bring. */
  chance: boolean;
};

/** Neither learned nor worse: the word while it goes on. */
export const UNSURE = "Not so far";

/** So many standard errors of a difference are more than chance. */
const SURE = 2;
/** A smaller gain is none, however sure. */
const LEAST = 0.005;
/** A smaller part of what was gained is not worth the word, when it is gone again. */
const LOST = 0.1;
/** Steps at either end that are taken together: those of training are small samples. */
const ENDS = 3;
/** Before so many steps, those of training say nothing of a run that goes on. */
export const FEW = 6;
/** Training rows that pay so much more than held-out ones were learned by heart. */
const GAP = 0.2;
/** Alerts that are rung when the reward may be earned in another way than meant. */
const SHORTCUTS = ["component_saturated", "length_blow_up", "repetition"];

/** The mean reward at each point of a series. */
export function means(scalars: Scalars | undefined): Mean[] {
  const reward = scalars?.get("reward/mean");
  const spread = scalars?.get("reward/std")?.y;
  const count = scalars?.get("rollouts")?.y;
  const rate = scalars?.get("solve_rate");
  if (!reward) return [];
  return Array.from(reward.y, (value, at) => ({
    value,
    step: reward.x[at]!,
    error: (spread?.[at] ?? 0) / Math.sqrt(Math.max(1, count?.[at] ?? 1)),
    solved: rate?.y[rate.x.indexOf(reward.x[at]!)],
  }));
}

/** Held-out rows as they were played: before all, after the warm start (whose weights step 0 has), after steps. */
export function heldOut(evaluated: Scalars | undefined, warm: Scalars | undefined): Mean[] {
  const all = means(evaluated);
  const begun = all.findIndex((each) => each.step > 0);
  const after = begun < 0 ? all.length : begun;
  const shown = means(warm).slice(-1);
  return [...all.slice(0, after), ...shown.map((each) => ({ ...each, step: 0, warm: true })), ...all.slice(after)];
}

const sure = (one: Mean, other: Mean) => Math.max(LEAST, SURE * Math.hypot(one.error, other.error));

/** What was learned, by held-out rows or, before there are two evaluations, by the training rows. */
export function learned(train: readonly Mean[], held: readonly Mean[]): Verdict | null {
  const heldOut = held.length > 1;
  const seen = heldOut ? held : ends(train);
  const [first, last] = [seen[0], seen.at(-1)];
  if (!first || !last || seen.length < 2) return null;
  const best = seen.reduce((top, each) => (each.value > top.value ? each : top));
  const told = { from: first.value, to: best.value, solved: best.solved, heldOut, fell: null, chance: false };
  if (first.value - last.value > sure(first, last) && best.value - first.value <= sure(first, best))
    return { ...told, word: "It got worse", tone: "bad", to: last.value, solved: last.solved };
  if (best.value - first.value <= sure(first, best))
    return { ...told, word: UNSURE, tone: "neutral", chance: gained(first, best) };
  const lost = Math.max(sure(best, last), LOST * (best.value - first.value));
  const fell = best.value - last.value > lost ? last.value : null;
  return { ...told, word: fell === null ? "Yes" : "Yes, then it fell", tone: fell === null ? "good" : "warn", fell };
}

/** Whether one mean is above another at all. */
export const gained = (from: Mean, to: Mean) => to.value - from.value > LEAST;

/** The first and the last steps, each as one mean. */
function ends(train: readonly Mean[]): Mean[] {
  const size = Math.min(ENDS, Math.floor(train.length / 2));
  return size === 0 ? [] : [joined(train.slice(0, size)), joined(train.slice(-size))];
}

function joined(each: readonly Mean[]): Mean {
  const sum = (of: (one: Mean) => number) => each.reduce((all, one) => all + of(one), 0);
  const error = Math.sqrt(sum((one) => one.error ** 2)) / each.length;
  return { value: sum((one) => one.value) / each.length, error, step: each.at(-1)!.step };
}

/** How much more training rows pay than held-out ones, when that is much and sure. */
export function byHeart(train: readonly Mean[], held: readonly Mean[]): { train: number; held: number } | null {
  const [ours, theirs] = [ends(train).at(-1), held.at(-1)];
  if (!ours || !theirs || theirs.step === 0) return null;
  const gap = ours.value - theirs.value;
  const scale = Math.max(Math.abs(ours.value), Math.abs(theirs.value));
  return gap > Math.max(GAP * scale, sure(ours, theirs)) ? { train: ours.value, held: theirs.value } : null;
}

/** Alerts that hint at a reward earned in another way than meant, the newest of each kind. */
export function shortcuts(alerts: readonly RunEvent[]): RunEvent[] {
  const newest = new Map(alerts.map((event) => [event.data.alert, event]));
  return [...newest].flatMap(([kind, event]) => (SHORTCUTS.includes(String(kind)) ? [event] : []));
}
