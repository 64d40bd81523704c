// The filter line of the runs list: `status:failed tag:rag reward>0.5 -name:toy "free words"`.
import type { RunInfo } from "../../api/client";
import { shownStep } from "../../api/steps";
import { meaning } from "./status";

type Test = (run: RunInfo) => boolean;
type Parsed = { test: Test; problem: string | null };

const NUMBERS: Record<string, (run: RunInfo) => number | null | undefined> = {
  reward: (run) => run.rewardLatest,
  eval: (run) => run.evalRewardLatest,
  step: (run) => (run.latestStep === null ? null : shownStep("train", run.latestStep)),
  steps: (run) => run.totalSteps,
  errors: (run) => run.errorRate,
  hours: (run) => (run.elapsedSeconds === null || run.elapsedSeconds === undefined ? null : run.elapsedSeconds / 3600),
  days: (run) => (Date.now() - new Date(run.createdAt).getTime()) / 86_400_000,
};

const TEXTS: Record<string, (run: RunInfo) => string[]> = {
  status: (run) => [run.status, meaning(run).word],
  tag: (run) => run.tags,
  name: (run) => [run.name],
  model: (run) => [run.model ?? ""],
  env: (run) => [run.environment],
  id: (run) => [run.id],
  is: (run) => [run.pinned ? "pinned" : "", run.isPublic ? "public" : "private", run.archived ? "archived" : ""],
};

export const HELP = "status:active tag:rag env:arithmetic model:qwen reward>0.5 step>=100 days<7 is:pinned -name:toy";

const WORD = /(-?)(?:([a-z]+)(:|>=|<=|>|<|=))?(?:"([^"]*)"|(\S+))/gi;

/** A test for runs; with a problem when a part of the text means nothing. */
export function parse(text: string): Parsed {
  const tests: Test[] = [];
  let problem: string | null = null;
  for (const [all, minus, field, sign, quoted, plain] of text.matchAll(WORD)) {
    const value = quoted ?? plain ?? "";
    const found = field ? test(field.toLowerCase(), sign!, value) : words(value);
    if (typeof found === "string") problem ??= found;
    else tests.push(minus && all.length > 1 ? (run) => !found(run) : found);
  }
  return { test: (run) => tests.every((each) => each(run)), problem };
}

function words(value: string): Test {
  const text = value.toLowerCase();
  return (run) =>
    [
      run.name,
      run.status,
      meaning(run).word,
      run.latestActivityMessage,
      run.environment,
      run.model ?? "",
      ...run.tags,
    ].some((each) => each.toLowerCase().includes(text));
}

function test(field: string, sign: string, value: string): Test | string {
  const text = Object.hasOwn(TEXTS, field) ? TEXTS[field] : undefined;
  if (text && sign === ":") return (run) => text(run).some((each) => each.toLowerCase().includes(value.toLowerCase()));
  const number = Object.hasOwn(NUMBERS, field) ? NUMBERS[field] : undefined;
  const bound = Number(value);
  if (number && sign !== ":" && value !== "" && Number.isFinite(bound)) {
    return (run) => {
      const found = number(run);
      return found !== null && found !== undefined && compare(found, sign, bound);
    };
  }
  if (number) return `${field} is a number: write ${field}>0.5`;
  if (text) return `${field} is text: write ${field}:word`;
  return `There is no field “${field}”. Fields: ${[...Object.keys(TEXTS), ...Object.keys(NUMBERS)].join(", ")}.`;
}

function compare(found: number, sign: string, bound: number): boolean {
  if (sign === ">") return found > bound;
  if (sign === ">=") return found >= bound;
  if (sign === "<") return found < bound;
  if (sign === "<=") return found <= bound;
  return found === bound;
}
