// What the trainer says of a run beside its curves: what it saw before the first step and did about it, what it put
// right on the way, what was learned. Read from the run's events; texts in them may be a model's.
import { useMemo } from "react";
import type { Schemas } from "./client";
import { useRunEvents } from "./queries";

type RunEvent = Schemas["RunEvent"];
type Data = Record<string, unknown>;

/** Whether a model can learn from an environment, by its first samples: the doctor says the same of one. */
export type Signal = Schemas["DoctorSignal"];
/** A setting nobody gave, and why it has its value. */
export type Chosen = { name: string; value: string; why: string };
export type Dose = { number: number; signal: Signal };
export type WarmStart = {
  how: string;
  why: string;
  rows: number;
  steps: number;
  doses: number;
  /** Mean reward on held-out rows. */
  before: number | null;
  after: number | null;
  /** How many solutions came from where. */
  sources: [name: string, count: number][];
};
export type Plan = {
  model: string;
  device: string;
  weights: number | null;
  trained: number | null;
  tune: string;
  rows: number | null;
  heldOut: number | null;
  prompts: number | null;
  samples: number | null;
  steps: number | null;
  secondsLimit: number | null;
  cutOff: string;
  /** In one step. */
  sampledTokens: number | null;
  computedTokens: number | null;
  stepSeconds: number | null;
  totalSeconds: number | null;
  memoryBytes: number | null;
};
export type Answer = { text: string; reward: number | null; cutOff: boolean };
export type Pair = { example: string; question: string; before: Answer; after: Answer };
export type Summary = {
  before: number | null;
  warm: number | null;
  best: number | null;
  bestStep: number | null;
  last: number | null;
  endedByThemselves: number | null;
  pairs: Pair[];
};

const MARKS = ["mended", "taught", "outage", "collapsed"] as const;
export type MarkKind = (typeof MARKS)[number];
/** Something that happened to the run at a step. */
export type Mark = { id: number; kind: MarkKind; step: number; message: string };

export type Training = {
  chosen: Chosen[];
  signal: Signal | null;
  doses: Dose[];
  warmStart: WarmStart | null;
  plan: Plan | null;
  marks: Mark[];
  summary: Summary | null;
};

export function useTraining(id: string): Training {
  const events = useRunEvents(id);
  return useMemo(() => readTraining(events.data?.events ?? []), [events.data]);
}

const TRAINER = "trainer.";

/** Of a run that was begun anew only the last beginning counts. */
export function readTraining(events: readonly RunEvent[]): Training {
  const begun = events.findLastIndex((event) => event.type === `${TRAINER}started`);
  const own = events.slice(Math.max(0, begun)).filter((event) => event.type.startsWith(TRAINER));
  const all = (kind: string) => own.filter((event) => event.type === TRAINER + kind).map((event) => event.data);
  const last = (kind: string) => all(kind).at(-1);
  const read = <T>(kind: string, reader: (data: Data) => T): T | null => {
    const data = last(kind);
    return data ? reader(data) : null;
  };
  return {
    chosen: read("plan", (data) => chosenOf(data.chosen)) ?? all("chosen").flatMap((data) => chosenOf(data.settings)),
    signal: read("signal", signalOf),
    doses: all("dose").map((data, index) => ({ number: number(data.dose) ?? index + 1, signal: signalOf(data) })),
    warmStart: read("warm_start", warmStartOf),
    plan: read("plan", planOf),
    marks: marksOf(own),
    summary: read("summary", summaryOf),
  };
}

/** A step that is tried again and again is one mark, with the last word on it. */
function marksOf(events: readonly RunEvent[]): Mark[] {
  const found = new Map<string, Mark>();
  for (const event of events) {
    const kind = MARKS.find((each) => event.type === TRAINER + each);
    // The curve goes on where the run went back to.
    const step = kind && number(kind === "mended" ? (event.data.back_to ?? event.data.step) : event.data.step);
    if (kind === undefined || step === null || step === undefined) continue;
    const key = kind === "outage" ? `${kind} ${step}` : String(event.id);
    // An outage names the step that is tried, counted from 0; the others, how many steps were done.
    found.set(key, { id: event.id, kind, step: kind === "outage" ? step + 1 : step, message: event.message });
  }
  return [...found.values()];
}

function signalOf(data: Data): Signal {
  const lazy = Object.entries(record(data.lazy)).flatMap(([name, value]) =>
    typeof value === "number" ? [[name, value] as const] : [],
  );
  return {
    groups: number(data.groups) ?? 0,
    samples: number(data.samples) ?? 0,
    reward: number(data.reward),
    best: number(data.best),
    passAtK: number(data.pass_at_k) ?? 0,
    spread: number(data.spread) ?? 0,
    unscored: number(data.unscored) ?? 0,
    cutOff: number(data.cut_off) ?? 0,
    inForm: number(data.in_form),
    firstCalls: number(data.first_calls),
    gold: number(data.gold),
    floor: number(data.floor) ?? 0,
    chance: number(data.chance),
    lazy: Object.fromEntries(lazy),
    learns: data.learns === true,
    ready: data.ready === true,
    forecast: text(data.forecast),
    advice: text(data.advice),
  };
}

function warmStartOf(data: Data): WarmStart {
  return {
    how: text(data.how),
    why: text(data.why),
    rows: number(data.rows) ?? 0,
    steps: number(data.steps) ?? 0,
    doses: number(data.doses) ?? 0,
    before: number(data.before),
    after: number(data.after),
    sources: Object.entries(record(data.sources)).map(([name, count]) => [name, number(count) ?? 0]),
  };
}

function planOf(data: Data): Plan {
  return {
    model: text(data.model),
    device: text(data.device),
    weights: number(data.weights),
    trained: number(data.trained),
    tune: text(data.tune),
    rows: number(data.rows),
    heldOut: number(data.held_out),
    prompts: number(data.prompts),
    samples: number(data.samples),
    steps: number(data.steps),
    secondsLimit: number(data.seconds_limit),
    cutOff: text(data.cut_off),
    sampledTokens: number(data.sampled_tokens),
    computedTokens: number(data.computed_tokens),
    stepSeconds: number(data.step_seconds),
    totalSeconds: number(data.total_seconds),
    memoryBytes: number(data.memory_bytes),
  };
}

function summaryOf(data: Data): Summary {
  return {
    before: number(data.before),
    warm: number(data.warm),
    best: number(data.best),
    bestStep: number(data.best_step),
    last: number(data.last),
    endedByThemselves: number(data.ended_by_themselves),
    pairs: list(data.pairs).map((pair) => ({
      example: text(pair.example_id),
      question: text(pair.question),
      before: answerOf(record(pair.before)),
      after: answerOf(record(pair.after)),
    })),
  };
}

function answerOf(data: Data): Answer {
  return { text: text(data.text), reward: number(data.reward), cutOff: data.cut_off === true };
}

function chosenOf(settings: unknown): Chosen[] {
  return list(settings).map((each) => ({
    name: text(each.name),
    value: typeof each.value === "string" ? each.value : (JSON.stringify(each.value) ?? "–"),
    why: text(each.why),
  }));
}

function number(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function record(value: unknown): Data {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? (value as Data) : {};
}

function list(value: unknown): Data[] {
  return Array.isArray(value) ? value.map(record) : [];
}
