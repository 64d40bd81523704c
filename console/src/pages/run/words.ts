// What the trainer did, in a line each.
import type { MarkKind, Signal, Training, WarmStart } from "../../api/training";
import { format } from "../../ui";

/** What a run is at before its first step; null when its trainer says nothing of that. */
export function doing({ chosen, signal, doses, warmStart, plan }: Training): string | null {
  const dose = doses.at(-1);
  if (plan) return "All is ready: the first step is under way";
  if (warmStart) return "Rehearsing a step, to see what the run will take";
  if (dose)
    return `Warm start, dose ${dose.number}: ${format.percent(dose.signal.spread, 0)} of groups have a difference`;
  if (signal) return "Warm start: looking for solutions to show";
  return chosen.length > 0 ? "Looking at the model's first samples" : null;
}

/** The beginning of a run, in short. */
export function before({ signal, warmStart }: Training): string {
  const said = signal ? [couldLearn(signal)] : [];
  if (warmStart?.steps) {
    const gained =
      warmStart.after === null ? "" : ` ${format.reward(warmStart.before)} → ${format.reward(warmStart.after)}`;
    said.push(`warm start${gained}`);
  } else if (warmStart) said.push("no warm start");
  return said.join(" · ");
}

function couldLearn({ learns, ready, reward }: Signal): string {
  if (learns) return "it could learn without help";
  if (reward === null) return "no sample got a reward";
  return ready ? "already solved" : "it needed help";
}

const SHOWN: Record<string, [one: string, many: string]> = {
  gold: ["solution that earns", "solutions that earn"],
  hint: ["own answer to a prompt with the solution", "own answers to prompts with the solution"],
  file: ["row of a file", "rows of a file"],
};

/** What a warm start showed: "64 solutions that earn (60 gold, 4 demonstrate)". */
export function shownRows({ how, rows, sources }: WarmStart): string {
  const [one, many] = (Object.hasOwn(SHOWN, how) ? SHOWN[how] : undefined) ?? ["row", "rows"];
  const from = sources.length > 1 ? ` (${sources.map(([name, count]) => `${count} ${name}`).join(", ")})` : "";
  return format.plural(rows, one, many) + from;
}

/** A clause as a sentence of its own. */
export function sentence(clause: string): string {
  return `${clause.slice(0, 1).toUpperCase()}${clause.slice(1)}.`;
}

export const MARK_WORDS: Record<MarkKind, { word: string; icon: string; tone: "good" | "warn" | "bad" | "info" }> = {
  mended: { word: "went back", icon: "back", tone: "warn" },
  taught: { word: "taught", icon: "book", tone: "info" },
  outage: { word: "no rewards", icon: "warn", tone: "bad" },
  collapsed: { word: "gave up", icon: "stop", tone: "bad" },
};
