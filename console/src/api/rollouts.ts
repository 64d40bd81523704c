// Rollouts of a run: their outline by step, the rows of one step, one in full, one example across steps.
import { keepPreviousData, queryOptions, useQuery } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "./client";

export type Item = Schemas["RolloutItem"];
export type Details = Schemas["RolloutDetails"];
export type Outline = Schemas["RolloutOutline"];
export type StepOutline = Schemas["StepOutline"];
export type HeatCell = Schemas["HeatCell"];
export type Order = "newest" | "worst" | "best" | "longest";

/** What a list is narrowed to; the same names as the server's. */
export type Filters = {
  mode: string;
  externalEvalId?: string;
  step?: number;
  promptMessageId?: string;
  termination?: string;
  failed?: boolean;
  tool?: string;
  discarded?: boolean;
  lowest?: number;
  highest?: number;
  /** The part of the reward that bounds and order are about; all of it when not given. */
  component?: string;
};

export type Scope = Pick<Filters, "mode" | "externalEvalId">;

const PAGE = 1000;
/** Rollouts of one step that a list holds; a filter shows the others. */
export const MOST_OF_STEP = 10_000;
export const FLAT_PAGE = 200;

export function useOutline(run: string, filters: Filters) {
  return useQuery({
    queryKey: ["run", run, "rollouts", "outline", filters],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/v1/train/runs/{run_id}/rollouts/outline", {
          params: { path: { run_id: run }, query: filters },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
  });
}

async function listed(run: string, filters: Filters, order: Order, page: number, limit: number, signal?: AbortSignal) {
  const query = { ...filters, order, page, limit };
  const params = { path: { run_id: run }, query };
  return (await unwrap(api.GET("/v1/train/runs/{run_id}/rollouts", { params, signal }))).data;
}

/** Every rollout of a step, by example and sample. */
export function stepQuery(run: string, filters: Filters, step: number) {
  return queryOptions({
    queryKey: ["run", run, "rollouts", "step", filters, step],
    queryFn: async ({ signal }) => {
      const found: Item[] = [];
      for (let page = 1; found.length < MOST_OF_STEP; page++) {
        const part = await listed(run, { ...filters, step }, "newest", page, PAGE, signal);
        found.push(...part);
        if (part.length < PAGE) break;
      }
      return found;
    },
    staleTime: 10_000,
  });
}

/** One page of a list that is not grouped. */
export function flatQuery(run: string, filters: Filters, order: Order, page: number) {
  return queryOptions({
    queryKey: ["run", run, "rollouts", "flat", filters, order, page],
    queryFn: ({ signal }) => listed(run, filters, order, page + 1, FLAT_PAGE, signal),
    staleTime: 10_000,
  });
}

/** Rollouts that hold a text. */
export function searchQuery(run: string, filters: Filters, order: Order, text: string) {
  return queryOptions({
    queryKey: ["run", run, "rollouts", "search", filters, order, text],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/v1/train/runs/{run_id}/rollouts/search", {
          params: { path: { run_id: run }, query: { ...filters, order, text } },
          signal,
        }),
      ),
    staleTime: 30_000,
  });
}

/** One rollout in full. It does not change once it is written. */
export function detailsQuery(run: string, id: string) {
  return queryOptions({
    queryKey: ["run", run, "rollout", id],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/v1/train/runs/{run_id}/rollouts/{rollout_id}/details", {
          params: { path: { run_id: run, rollout_id: id } },
          signal,
        }),
      ),
    staleTime: 300_000,
    gcTime: 60_000,
    structuralSharing: false,
  });
}

/** Every rollout of one example, over all steps. */
export function useExample(run: string, scope: Scope, example: string | undefined) {
  return useQuery({
    queryKey: ["run", run, "rollouts", "example", scope, example],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/v1/train/runs/{run_id}/rollouts/heatmap", {
          params: { path: { run_id: run }, query: { ...scope, promptMessageId: example ?? "" } },
          signal,
        }),
      ),
    enabled: example !== undefined,
    staleTime: 10_000,
  });
}

/** Every example with its mean reward at each step, a page of them. */
export function summaryQuery(run: string, scope: Scope, page: number, limit = 200) {
  return queryOptions({
    queryKey: ["run", run, "rollouts", "summary", scope, page, limit],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/v1/train/runs/{run_id}/rollouts/summary", {
          params: { path: { run_id: run }, query: { ...scope, page, limit } },
          signal,
        }),
      ),
    staleTime: 10_000,
  });
}
