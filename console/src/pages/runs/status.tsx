// What a run's status means, in plain words, and what one would do next.
import type { RunInfo } from "../../api/client";
import { Pill, type Tone } from "../../ui";

type Meaning = { word: string; tone: Tone; means: string; next?: { label: string; tab: string } };

const MEANINGS: Record<string, Meaning> = {
  pending: { word: "Waiting", tone: "neutral", means: "It waits for a free slot. Nothing has begun." },
  active: {
    word: "Training",
    tone: "live",
    means: "It is being trained now.",
    next: { label: "Watch it learn", tab: "train" },
  },
  complete: { word: "Done", tone: "good", means: "It reached its end.", next: { label: "Compare it", tab: "compare" } },
  failed: {
    word: "Failed",
    tone: "bad",
    means: "It ended with an error.",
    next: { label: "Read its log", tab: "logs" },
  },
  stalled: {
    word: "Stalled",
    tone: "warn",
    means: "It stopped answering; it can go on from its last checkpoint.",
    next: { label: "Read its log", tab: "logs" },
  },
  cancelled: {
    word: "Cancelled",
    tone: "neutral",
    means: "Somebody stopped it; it can go on from its last checkpoint.",
    next: { label: "See its curves", tab: "train" },
  },
};

export function meaning(status: string): Meaning {
  const known = Object.hasOwn(MEANINGS, status) ? MEANINGS[status] : undefined;
  return known ?? { word: status, tone: "neutral", means: "" };
}

export function StatusPill({ run }: { run: Pick<RunInfo, "status" | "statusReason"> }) {
  const { word, tone, means } = meaning(run.status);
  return (
    <Pill tone={tone} dot title={[means, run.statusReason].filter(Boolean).join(" ")}>
      {word}
    </Pill>
  );
}
