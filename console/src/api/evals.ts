// Comparisons: other models played on the run's held-out rows, and how they did against it.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "./client";
import { isOver } from "./queries";
import { useRenewing } from "./renew";

export type EvalInfo = Schemas["EvalInfo"];
export type ComparedGroup = Schemas["ComparedGroup"];
export type Compared = Schemas["ComparedComponent"];

export function useEvals(run: string) {
  return useQuery({
    queryKey: ["run", run, "evals"],
    queryFn: async () =>
      (await unwrap(api.GET("/v1/train/runs/{run_id}/external-eval", { params: { path: { run_id: run } } }))).evals,
    // The stream of an ended run is closed: its evals are asked for while one goes on.
    refetchInterval: (query) => (query.state.data?.some((each) => !isOver(each.status)) ? 2_000 : false),
  });
}

export function useStartEval(run: string) {
  return useRenewing(
    (body: Schemas["EvalRequest"]) =>
      unwrap(api.POST("/v1/train/runs/{run_id}/external-eval", { params: { path: { run_id: run } }, body })),
    ["run", run, "evals"],
  );
}

/** What a run is held against: another model on its rows, or another run's own evaluation. */
export type Other = { externalEvalId: string } | { otherRunId: string };

const key = (run: string, other: Other, version: string) => [
  "run",
  run,
  "evals",
  ...Object.entries(other).flat(),
  version,
];

/** Every component of both, paired by example. `version` renews it as the eval goes on. */
export function useComparison(run: string, other: Other, version: string) {
  return useQuery({
    queryKey: [...key(run, other, version), "summary"],
    queryFn: () =>
      unwrap(
        api.GET("/v1/train/runs/{run_id}/rollouts/comparison/summary", {
          params: { path: { run_id: run }, query: other },
        }),
      ),
    placeholderData: keepPreviousData,
  });
}

const PAGE = 1000;
const MOST = 10_000;

/** Examples that both played, with the rollouts of each side. */
export function useCompared(run: string, other: Other, version: string) {
  return useQuery({
    queryKey: [...key(run, other, version), "examples"],
    queryFn: async () => {
      const ours = new Map<string, ComparedGroup>();
      const theirs: ComparedGroup[] = [];
      let total = 0;
      for (let page = 1; theirs.length < MOST; page++) {
        const query = { ...other, page, limit: PAGE };
        const found = await unwrap(
          api.GET("/v1/train/runs/{run_id}/rollouts/comparison", { params: { path: { run_id: run }, query } }),
        );
        for (const group of found.modelGroups) ours.set(group.promptMessageId, group);
        theirs.push(...found.compGroups);
        total = found.total;
        if (page * PAGE >= total) break;
      }
      return { total, pairs: theirs.map((group) => ({ other: group, ours: ours.get(group.promptMessageId) })) };
    },
    placeholderData: keepPreviousData,
  });
}
