// What the pages ask the server. Keys begin with "runs" or ["run", id], so that the live feed can renew them by kind.
import {
  CancelledError,
  keepPreviousData,
  MutationCache,
  QueryCache,
  QueryClient,
  queryOptions,
  useQuery,
} from "@tanstack/react-query";
import { ApiError, api, type RunStatus, request, type Schemas, unwrap } from "./client";
import { useRenewing } from "./renew";
import { session } from "./session";

function watch(error: unknown, quiet = false): void {
  if (error instanceof ApiError && error.status === 401 && !quiet) session.end();
}

export const queries = new QueryClient({
  queryCache: new QueryCache({
    onError: (error, query) => watch(error, query.meta?.quiet === true),
  }),
  mutationCache: new MutationCache({ onError: (error) => watch(error) }),
  defaultOptions: {
    queries: {
      staleTime: 2_000,
      networkMode: "always",
      // A server that restarts is waited for; a refusal is final.
      retry: (count, error) =>
        !(error instanceof ApiError) || (error.status === 0 || error.status >= 500 ? count < 40 : false),
      retryDelay: (count) => Math.min(500 * 1.6 ** count, 8_000),
      refetchOnWindowFocus: true,
    },
    mutations: { networkMode: "always" },
  },
});

// Whoever goes on before an answer came no longer waits for it: nothing went wrong.
window.addEventListener("unhandledrejection", (event) => {
  if (event.reason instanceof CancelledError) event.preventDefault();
});

export function useMe() {
  return useQuery({
    queryKey: ["me"],
    queryFn: () => unwrap(api.GET("/v1/whoami")),
    meta: { quiet: true },
    staleTime: 60_000,
  });
}

export type RunFilter = { archived?: boolean };

/** The caller's runs, renewed every few seconds while the page is seen; `once` asks only when it opens. */
export function useRuns(filter: RunFilter = {}, { enabled = true, once = false } = {}) {
  return useQuery({
    queryKey: ["runs", filter],
    queryFn: () => unwrap(api.GET("/v1/train/runs", { params: { query: filter } })),
    refetchInterval: once ? false : 4_000,
    placeholderData: keepPreviousData,
    enabled,
  });
}

export function useRunDetails(id: string) {
  return useQuery({
    queryKey: ["run", id, "details"],
    queryFn: () => unwrap(api.GET("/v1/train/runs/{run_id}/details", { params: { path: { run_id: id } } })),
    refetchInterval: (query) => (isOver(query.state.data?.status) ? false : 10_000),
  });
}

function runEvents(id: string) {
  return queryOptions({
    queryKey: ["run", id, "events"],
    queryFn: () => unwrap(api.GET("/v1/train/runs/{run_id}/events", { params: { path: { run_id: id } } })),
  });
}

export function useRunEvents(id: string) {
  return useQuery(runEvents(id));
}

/** Begin to fetch a run's events, before what shows them is there. */
export function prefetchRunEvents(id: string): void {
  queries.prefetchQuery(runEvents(id));
}

export function useAlerts(id: string) {
  return useQuery({
    queryKey: ["run", id, "alerts"],
    queryFn: () => unwrap(api.GET("/v1/train/runs/{run_id}/alerts", { params: { path: { run_id: id } } })),
  });
}

export function useCheckpoints(id: string) {
  return useQuery({
    queryKey: ["run", id, "checkpoints"],
    queryFn: () => unwrap(api.GET("/v1/train/runs/{run_id}/checkpoints", { params: { path: { run_id: id } } })),
  });
}

/** Change a run (name, tags, archived, isPublic …) and renew what shows it. */
export function useChangeRun() {
  return useRenewing(
    ({ id, ...change }: { id: string } & Partial<Schemas["RunChange"]> & Record<string, unknown>) =>
      request<Schemas["RunInfo"]>("PATCH", `/v1/train/runs/${encodeURIComponent(id)}`, change),
    ["runs"],
    ({ id }) => ["run", id, "details"],
  );
}

/** Cancel, resume or delete a run; the answer's message says what will happen. */
export function useRunAction() {
  return useRenewing(
    ({ id, action }: { id: string; action: "cancel" | "resume" | "delete" }) => {
      const path = `/v1/train/runs/${encodeURIComponent(id)}`;
      return action === "delete"
        ? request<Schemas["Success"]>("DELETE", path)
        : request<Schemas["Success"]>("POST", `${path}/${action}`);
    },
    ["runs"],
    ({ id }) => ["run", id],
  );
}

const OVER: Record<RunStatus, boolean> = {
  pending: false,
  active: false,
  complete: true,
  failed: true,
  stalled: true,
  cancelled: true,
};

/** Whether a run does not go on by itself. */
export function isOver(status: RunStatus | undefined): boolean {
  return status !== undefined && OVER[status];
}
