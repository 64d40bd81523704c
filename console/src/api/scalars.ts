import { keepPreviousData, queryOptions, useQueries, useQuery } from "@tanstack/react-query";
import { fromPoints, type Series } from "../chart/series";
import { api, unwrap } from "./client";
import { queries } from "./queries";
import { shownStep } from "./steps";

export type Scalars = Map<string, Series>;

/** Points of a series that a chart gets; a longer run is sent in so many buckets, with their extremes. */
const BUCKETS = 1200;

/** Begin to fetch what the charts of a run need, before the charts themselves are there. */
export function prefetchScalars(id: string, mode: string): void {
  queries.prefetchQuery(options(id, mode, false));
}

/** Every series of a mode, as arrays, by step as it is shown; in buckets, until `whole` is asked for and there. `null` asks nothing. */
export function useScalars(id: string | null, mode: string, whole = false) {
  const coarse = useQuery({ ...options(id, mode, false), enabled: id !== null, placeholderData: keepPreviousData });
  const lacking = whole && [...(coarse.data?.values() ?? [])].some((series) => series.low !== undefined);
  const fine = useQuery({ ...options(id, mode, true), enabled: id !== null && lacking });
  return lacking && fine.data ? { ...coarse, data: fine.data } : coarse;
}

/** The series of several runs, each undefined until it is there. */
export function useScalarsOf(ids: readonly string[], mode: string): (Scalars | undefined)[] {
  return useQueries({ queries: ids.map((id) => options(id, mode, false)), combine: dataOf });
}

function dataOf(found: { data?: Scalars }[]): (Scalars | undefined)[] {
  return found.map((each) => each.data);
}

function options(id: string | null, mode: string, whole: boolean) {
  return queryOptions({
    queryKey: ["run", id, "scalars", mode, whole],
    queryFn: async ({ signal }): Promise<Scalars> => {
      const call = api.GET("/v1/train/runs/{run_id}/scalars", {
        params: { path: { run_id: id! }, query: { mode, buckets: whole ? undefined : BUCKETS } },
        signal,
      });
      const found = await unwrap(call);
      return new Map(Object.entries(found).map(([name, points]) => [name, fromPoints(points, shownStep(mode, 0))]));
    },
    structuralSharing: false,
    refetchOnWindowFocus: false,
  });
}
