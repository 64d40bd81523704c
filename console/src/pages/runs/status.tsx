// What a run's status means, in plain words, and what one would do next.
import type { RunInfo, RunStatus } from "../../api/client";
import { Pill, type Tone } from "../../ui";

type Meaning = { word: string; tone: Tone; means: string; next?: { label: string; tab: string } };

const MEANINGS: Record<RunStatus, Meaning> = {
  pending: { word: "Waiting", tone: "neutral", means: "Waiting for a free slot. Nothing has started." },
  active: {
    word: "Training",
    tone: "live",
    means: "Training now.",
    next: { label: "Watch it learn", tab: "train" },
  },
  complete: { word: "Done", tone: "good", means: "It has finished.", next: { label: "Compare it", tab: "compare" } },
  failed: {
    word: "Failed",
    tone: "bad",
    means: "It ended with an error.",
    next: { label: "Read its log", tab: "logs" },
  },
  stalled: {
    word: "Stalled",
    tone: "warn",
    means: "It stopped responding; it can be resumed from its last checkpoint.",
    next: { label: "Read its log", tab: "logs" },
  },
  cancelled: {
    word: "Stopped",
    tone: "neutral",
    means: "You stopped it; it can be resumed from its last checkpoint.",
    next: { label: "See its curves", tab: "train" },
  },
};

const STARTING: Meaning = {
  word: "Starting",
  tone: "live",
  means: "A runner is loading the model.",
  next: { label: "Read its log", tab: "logs" },
};

export type Told = Pick<RunInfo, "status" | "statusReason" | "latestStep">;

export function meaning(run: Told): Meaning {
  if (isStarting(run)) return STARTING;
  const found = MEANINGS[run.status];
  // Without a step there are no curves to see.
  return run.status === "cancelled" && run.latestStep === null ? { ...found, next: undefined } : found;
}

/** A slot was found; the status stays "pending" until the trainer speaks. */
export function isStarting(run: Told): boolean {
  return run.status === "pending" && run.statusReason === "starting";
}

/** What a run that has not begun waits for. */
export function beginning(run: Told): string | null {
  if (isStarting(run)) return "The model is being loaded";
  return run.status === "pending" ? "Waiting for a free slot" : null;
}

export function StatusPill({ run }: { run: Told }) {
  const { word, tone, means } = meaning(run);
  return (
    <Pill tone={tone} dot title={[means, run.statusReason].filter(Boolean).join(" ")}>
      {word}
    </Pill>
  );
}
