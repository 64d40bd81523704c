// What a comparison says, in words. "Ours" is the trained model.
import type { RunStatus } from "../../../api/client";
import type { Compared, EvalInfo } from "../../../api/evals";
import type { Tone } from "../../../ui";

/** What the server decided: better or worse only if the interval excludes zero. */
export function verdict(each: Compared): { label: string; tone: Tone; hint: string } {
  if (each.label === "outperformed") {
    return { label: "better", tone: "good", hint: "The whole interval is above zero." };
  }
  if (each.label === "comparison leads") {
    return { label: "worse", tone: "bad", hint: "The whole interval is below zero." };
  }
  return {
    label: "no clear difference",
    tone: "neutral",
    hint:
      each.ciLow === null
        ? "One example is too few to tell."
        : "The interval includes zero: more examples may settle it.",
  };
}

export function modelName(model: string, endpoints: { id: string; name: string }[] = []): string {
  const [kind, name = ""] = model.split(":", 2);
  if (kind === "base") return "Base model";
  if (kind === "checkpoint") return `Checkpoint ${name}`;
  return endpoints.find((each) => each.id === name)?.name ?? "Endpoint";
}

const STATES: Record<RunStatus, string> = {
  pending: "Waiting for a free slot",
  active: "Playing the held-out rows",
  complete: "Done",
  failed: "Failed",
  cancelled: "Stopped",
  stalled: "Stalled",
};

export function state(each: EvalInfo): string {
  return STATES[each.status];
}
