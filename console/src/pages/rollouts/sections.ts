// The list as sections that load when they come into view: steps with their groups, or pages of a flat list. How many
// rows a section has is known before it is loaded, so the scroll bar tells the truth from the beginning.
import { type QueryClient, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import {
  FLAT_PAGE,
  flatQuery,
  type Item,
  MOST_OF_STEP,
  type Outline,
  type StepOutline,
  searchQuery,
  stepQuery,
} from "../../api/rollouts";
import type { View } from "./filters";

export type Row =
  | { kind: "step"; step: StepOutline; folded: boolean }
  | { kind: "group"; id: string; text: string; count: number; mean: number | null }
  | { kind: "sample"; item: Item; words?: string; flat: boolean }
  | { kind: "waiting" };

type Section = { first: number; size: number; step?: StepOutline; folded: boolean; page: number };

export type Rows = {
  count: number;
  /** The row at a place, or "waiting" while its section loads. */
  at: (index: number) => Row;
  /** All of them, loaded or not. */
  sections: Section[];
  sectionAt: (index: number) => number;
  /** The rollout `by` rows (or groups) further, loading what is needed; null at an end. */
  next: (id: string, by: 1 | -1, groups: boolean) => Promise<Item | null>;
  /** Where a rollout is, when its section is loaded. */
  find: (id: string) => number;
  searched?: { done: number; total: number; found: number; busy: boolean };
  error: unknown;
};

const NOTHING: Row = { kind: "waiting" };

export function useRows(
  run: string,
  view: View,
  outline: Outline | undefined,
  folded: ReadonlySet<number>,
  from: number,
  to: number,
): Rows {
  const client = useQueryClient();
  const flat = view.order !== "newest";
  const searching = view.text !== "";
  const search = useQuery({ ...searchQuery(run, view.filters, view.order, view.text), enabled: searching });
  const sections = useMemo(() => layout(outline, flat, folded), [outline, flat, folded]);
  const sectionAt = useCallback((index: number) => locate(sections, index), [sections]);
  const inView = useMemo(() => {
    const last = sections.length - 1;
    return searching || last < 0 ? [] : range(sectionAt(from), Math.min(last, sectionAt(to)));
  }, [sections, sectionAt, from, to, searching]);
  const queryOf = useCallback(
    (section: Section) =>
      section.step
        ? stepQuery(run, view.filters, section.step.step)
        : flatQuery(run, view.filters, view.order, section.page),
    [run, view],
  );
  const results = useQueries({
    queries: inView.map((index) => {
      const section = sections[index] as Section;
      return { ...queryOf(section), enabled: !section.folded };
    }) as ReturnType<typeof stepQuery>[],
  });
  // Reading the data is what renews the list when it comes.
  for (const result of results) void result.data;
  const found = useMemo(
    () =>
      search.data?.found.map((each): Row => ({ kind: "sample", item: each.rollout, words: each.words, flat: true })),
    [search.data],
  );
  const rowsOf = useCallback(
    (section: Section) => cached(client, queryOf(section).queryKey, section),
    [client, queryOf],
  );
  const at = (index: number): Row => {
    if (searching) return found?.[index] ?? NOTHING;
    const section = sections[sectionAt(index)];
    if (!section) return NOTHING;
    const local = index - section.first;
    if (section.step && local === 0) return { kind: "step", step: section.step, folded: section.folded };
    return rowsOf(section)?.[local] ?? NOTHING;
  };
  const next = async (id: string, by: 1 | -1, groups: boolean): Promise<Item | null> => {
    if (searching) return walk(found ?? [], id, by, groups).item ?? null;
    return step(client, sections, rowsOf, queryOf, id, by, groups);
  };
  const find = (id: string): number => {
    if (searching) return found?.findIndex((row) => isSample(row, id)) ?? -1;
    for (const section of sections) {
      const local = rowsOf(section)?.findIndex((row) => isSample(row, id)) ?? -1;
      if (local >= 0) return section.first + local;
    }
    return -1;
  };
  const last = sections.at(-1);
  const all = last ? last.first + last.size : 0;
  return {
    count: searching ? (found?.length ?? 0) : all,
    at,
    sections,
    sectionAt,
    next,
    find,
    searched: searching
      ? {
          done: search.data?.searched ?? 0,
          total: search.data?.total ?? 0,
          found: found?.length ?? 0,
          busy: search.isFetching,
        }
      : undefined,
    error: search.error ?? results.find((result) => result.error)?.error,
  };
}

function layout(outline: Outline | undefined, flat: boolean, folded: ReadonlySet<number>): Section[] {
  const steps = outline?.steps ?? [];
  const sections: Section[] = [];
  let first = 0;
  const add = (section: Omit<Section, "first">) => {
    sections.push({ ...section, first });
    first += section.size;
  };
  if (flat) {
    const total = steps.reduce((sum, step) => sum + step.rollouts, 0);
    for (let page = 0; page * FLAT_PAGE < total; page++) {
      add({ size: Math.min(FLAT_PAGE, total - page * FLAT_PAGE), folded: false, page });
    }
    return sections;
  }
  for (const step of steps) {
    const hidden = folded.has(step.step);
    add({ size: hidden ? 1 : 1 + step.groups + Math.min(step.rollouts, MOST_OF_STEP), step, folded: hidden, page: 0 });
  }
  return sections;
}

/** The section of a row, by halving. */
function locate(sections: Section[], index: number): number {
  let low = 0;
  let high = sections.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((sections[middle] as Section).first <= index) low = middle;
    else high = middle - 1;
  }
  return low;
}

const made = new WeakMap<Item[], Row[]>();

function cached(client: QueryClient, key: readonly unknown[], section: Section): Row[] | undefined {
  if (section.folded) return undefined;
  const items = client.getQueryData<Item[]>(key);
  if (!items) return undefined;
  let rows = made.get(items);
  if (!rows) {
    rows = section.step ? grouped(items, section.step) : items.map((item) => ({ kind: "sample", item, flat: true }));
    made.set(items, rows);
  }
  return rows;
}

function grouped(items: Item[], step: StepOutline): Row[] {
  const rows: Row[] = [{ kind: "step", step, folded: false }];
  for (let from = 0; from < items.length; ) {
    const first = items[from] as Item;
    let to = from;
    while (items[to]?.promptMessageId === first.promptMessageId) to += 1;
    const group = items.slice(from, to);
    rows.push({
      kind: "group",
      id: first.promptMessageId,
      text: first.promptText,
      count: group.length,
      mean: mean(group),
    });
    for (const item of group) rows.push({ kind: "sample", item, flat: false });
    from = to;
  }
  return rows;
}

function mean(items: Item[]): number | null {
  const scored = items.map((item) => item.totalReward).filter((value) => value !== null) as number[];
  return scored.length ? scored.reduce((sum, value) => sum + value, 0) / scored.length : null;
}

type RowsOf = (section: Section) => Row[] | undefined;
type QueryOf = (section: Section) => ReturnType<typeof stepQuery> | ReturnType<typeof flatQuery>;

/** The next rollout in the order of the list, over the borders of sections. */
async function step(
  client: QueryClient,
  sections: Section[],
  rowsOf: RowsOf,
  queryOf: QueryOf,
  id: string,
  by: 1 | -1,
  groups: boolean,
): Promise<Item | null> {
  let at = sections.findIndex((section) => rowsOf(section)?.some((row) => isSample(row, id)));
  if (at >= 0) {
    const inside = walk(rowsOf(sections[at] as Section) ?? [], id, by, groups);
    if (inside.item) return inside.item;
  } else if (by < 0) return null;
  for (at += by; at >= 0 && at < sections.length; at += by) {
    const section = { ...(sections[at] as Section), folded: false };
    await client.ensureQueryData(queryOf(section) as ReturnType<typeof stepQuery>);
    const rows = (rowsOf(section) ?? []).filter((row) => row.kind === "sample");
    const found = by > 0 ? rows[0] : groups ? firstOfLast(rows) : rows.at(-1);
    if (found?.kind === "sample") return found.item;
  }
  return null;
}

function walk(rows: Row[], id: string, by: 1 | -1, groups: boolean): { item?: Item } {
  const samples = rows.filter((row) => row.kind === "sample");
  const at = samples.findIndex((row) => isSample(row, id));
  if (at < 0) return { item: by > 0 ? samples[0]?.item : undefined };
  if (!groups) return { item: samples[at + by]?.item };
  const own = samples[at]?.item.promptMessageId;
  let to = at;
  while (samples[to]?.item.promptMessageId === own) to += by;
  const other = samples[to]?.item.promptMessageId;
  // Backwards, a group is entered at its first sample too.
  while (by < 0 && other !== undefined && samples[to - 1]?.item.promptMessageId === other) to -= 1;
  return { item: samples[to]?.item };
}

function firstOfLast(rows: Row[]): Row | undefined {
  const samples = rows.filter((row) => row.kind === "sample");
  const last = samples.at(-1)?.item.promptMessageId;
  return samples.find((row) => row.item.promptMessageId === last);
}

function isSample(row: Row, id: string): boolean {
  return row.kind === "sample" && row.item.id === id;
}

function range(from: number, to: number): number[] {
  return Array.from({ length: Math.max(0, to - from + 1) }, (_, index) => from + index);
}
