// What the Rollouts tab shows is all in its address: mode, filters, order, the open rollout, the one beside it.
import { useMemo } from "react";
import type { Filters, Order } from "../../api/rollouts";
import { type Search, useSearch } from "../../ui";

export type View = {
  filters: Filters;
  order: Order;
  /** Full-text search. */
  text: string;
  /** The open rollout, and the one beside it. */
  open: string;
  beside: string;
  shape: "list" | "map";
  /** Whether anything narrows the list. */
  narrowed: boolean;
  /** Whether a field of the filter panel does; a step or an example is chosen elsewhere, and its chip says so. */
  byField: boolean;
  search: Search;
};

const FIELDS = ["ended", "failed", "tool", "discarded", "low", "high", "component"];
const NARROWING = ["step", "example", ...FIELDS, "q"];
export const CLEARED = Object.fromEntries(NARROWING.map((name) => [name, null]));

export const MODES = ["train", "eval", "external-eval"];

export function useView(firstMode: string): View {
  const search = useSearch();
  return useMemo(() => {
    const { values } = search;
    const mode = values.mode && MODES.includes(values.mode) ? values.mode : firstMode;
    const filters: Filters = {
      mode,
      externalEvalId: mode === "external-eval" ? values.eval : undefined,
      step: whole(values.step),
      promptMessageId: values.example || undefined,
      termination: values.ended || undefined,
      failed: values.failed === "yes" ? true : values.failed === "no" ? false : undefined,
      tool: values.tool || undefined,
      discarded: values.discarded === "yes" ? true : values.discarded === "no" ? false : undefined,
      lowest: decimal(values.low),
      highest: decimal(values.high),
      component: values.component || undefined,
    };
    const given = Object.fromEntries(Object.entries(filters).filter(([, value]) => value !== undefined)) as Filters;
    return {
      filters: given,
      order: isOrder(values.order) ? values.order : "newest",
      text: values.q ?? "",
      open: values.rollout ?? "",
      beside: values.with ?? "",
      shape: values.view === "map" ? "map" : "list",
      narrowed: NARROWING.some((name) => values[name]),
      byField: FIELDS.some((name) => values[name]),
      search,
    };
  }, [search, firstMode]);
}

function whole(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,9}$/.test(text) ? Number(text) : undefined;
}

function decimal(text: string | undefined): number | undefined {
  const value = text ? Number(text) : Number.NaN;
  return Number.isFinite(value) ? value : undefined;
}

function isOrder(text: string | undefined): text is Order {
  return text === "newest" || text === "worst" || text === "best" || text === "longest";
}
