// What the doctor found in the environment of a run.
import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "./client";

/** The newest report on the environment a run was launched with; only the owner may ask. */
export function useRunDoctor(id: string, enabled: boolean) {
  return useQuery({
    queryKey: ["run", id, "doctor"],
    queryFn: () => unwrap(api.GET("/v1/train/runs/{run_id}/doctor", { params: { path: { run_id: id } } })),
    enabled,
  });
}
