// The index of rollouts in a saved copy: the same lists, filters and orders as the server's.
import type { Schemas } from "../api/client";

type Item = Schemas["RolloutItem"];
type Details = Schemas["RolloutDetails"];

function filtered(items: Item[], query: URLSearchParams): Item[] {
  const step = query.get("step");
  const example = query.get("promptMessageId");
  const ended = query.get("termination");
  const failed = query.get("failed");
  const tool = query.get("tool");
  const discarded = query.get("discarded");
  const low = query.get("lowest");
  const high = query.get("highest");
  return items.filter(
    (item) =>
      (step === null || item.step === Number(step)) &&
      (example === null || item.promptMessageId === example) &&
      (ended === null || item.termination === ended) &&
      (failed === null || item.ok === (failed !== "true")) &&
      (tool === null || item.tools.includes(tool)) &&
      (discarded === null || (item.discarded !== null) === (discarded === "true")) &&
      (low === null || (pay(item, query) ?? Number.NEGATIVE_INFINITY) >= Number(low)) &&
      (high === null || (pay(item, query) ?? Number.POSITIVE_INFINITY) <= Number(high)),
  );
}

/** What it earned: in all, or by the component that is asked for. */
function pay(item: Item, query: URLSearchParams): number | null {
  const component = query.get("component");
  return component === null ? item.totalReward : (item.rewards[component] ?? null);
}

const newest = (a: Item, b: Item) =>
  b.step - a.step || compare(a.promptMessageId, b.promptMessageId) || a.sample - b.sample;

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function ordered(items: Item[], query: URLSearchParams): Item[] {
  const order = query.get("order");
  const last = (item: Item) => (pay(item, query) === null ? 1 : 0);
  const reward = (item: Item) => pay(item, query) ?? 0;
  return [...items].sort((a, b) => {
    if (order === "worst") return last(a) - last(b) || reward(a) - reward(b) || newest(a, b);
    if (order === "best") return last(a) - last(b) || reward(b) - reward(a) || newest(a, b);
    if (order === "longest") return b.tokens - a.tokens || newest(a, b);
    return newest(a, b);
  });
}

function paged<T>(all: T[], query: URLSearchParams): { data: T[]; page: number; limit: number; total: number } {
  const page = Number(query.get("page") ?? 1);
  const limit = Number(query.get("limit") ?? 50);
  return { data: all.slice((page - 1) * limit, page * limit), page, limit, total: all.length };
}

export function listed(items: Item[], query: URLSearchParams) {
  return paged(ordered(filtered(items, query), query), query);
}

function grouped<K>(items: Item[], key: (item: Item) => K): Map<K, Item[]> {
  const found = new Map<K, Item[]>();
  for (const item of items) {
    const group = found.get(key(item));
    if (group) group.push(item);
    else found.set(key(item), [item]);
  }
  return found;
}

function mean(items: Item[]): number | null {
  const scored = items.flatMap((item) => (item.totalReward === null ? [] : [item.totalReward]));
  return scored.length ? scored.reduce((sum, value) => sum + value, 0) / scored.length : null;
}

export function outline(items: Item[], query: URLSearchParams): Schemas["RolloutOutline"] {
  const steps = [...grouped(filtered(items, query), (item) => item.step)].sort(([a], [b]) => b - a);
  return {
    steps: steps.map(([step, found]) => {
      const rewards = found.flatMap((item) => (item.totalReward === null ? [] : [item.totalReward]));
      return {
        step,
        rollouts: found.length,
        groups: new Set(found.map((item) => item.promptMessageId)).size,
        meanReward: mean(found),
        lowest: rewards.length ? Math.min(...rewards) : null,
        highest: rewards.length ? Math.max(...rewards) : null,
        failed: found.filter((item) => !item.ok).length,
        discarded: found.filter((item) => item.discarded !== null).length,
        mostTokens: Math.max(...found.map((item) => item.tokens)),
      };
    }),
    tools: [...new Set(items.flatMap((item) => item.tools))].sort(),
    terminations: [...new Set(items.map((item) => item.termination))].sort(),
  };
}

export function summary(items: Item[], query: URLSearchParams) {
  const groups = [...grouped(items, (item) => item.promptMessageId)].map(([promptMessageId, found]) => ({
    promptMessageId,
    promptText: found[0]?.promptText ?? "",
    rewardHistory: [...grouped(found, (item) => item.step)]
      .sort(([a], [b]) => a - b)
      .map(([step, each]) => ({ step, meanReward: mean(each) })),
  }));
  return paged(groups, query);
}

export function heatmap(items: Item[], query: URLSearchParams): Schemas["HeatCell"][] {
  return items
    .filter((item) => item.promptMessageId === query.get("promptMessageId"))
    .sort((a, b) => a.step - b.step || a.sample - b.sample)
    .map(({ id, step, totalReward, sample }) => ({ id, step, totalReward, sample }));
}

const AROUND = 60;

/** A search through whole rollouts, file by file. */
export async function searched(items: Item[], query: URLSearchParams, whole: (id: string) => Promise<Details>) {
  const wanted = (query.get("text") ?? "").toLowerCase();
  const all = ordered(filtered(items, query), query);
  const found: Schemas["FoundRollout"][] = [];
  for (const item of all) {
    const { promptMessages, messages, task, error, logs } = await whole(item.id);
    const text = textsOf([promptMessages, messages, task, error, logs]).find((each) =>
      each.toLowerCase().includes(wanted),
    );
    if (text === undefined) continue;
    const at = text.toLowerCase().indexOf(wanted);
    found.push({ rollout: item, words: text.slice(Math.max(0, at - AROUND), at + wanted.length + AROUND) });
    if (found.length >= 200) break;
  }
  return { found, searched: all.length, total: all.length };
}

function textsOf(value: unknown): string[] {
  if (typeof value === "string") return [value];
  if (value && typeof value === "object") return Object.values(value).flatMap(textsOf);
  return [];
}
