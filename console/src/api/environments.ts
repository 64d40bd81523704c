// Environments: built in, of installed packages and uploaded, and what the doctor says of them.
import { useQuery } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "./client";
import { useRenewing } from "./renew";

export type Environment = Schemas["EnvironmentInfo"];
export type EnvironmentDetails = Schemas["EnvironmentDetails"];
export type Report = Schemas["DoctorReport"];
export type DoctorFinding = Schemas["DoctorFinding"];

/** Whether it is named by its id, in commands and among others with commas; an upload is not. */
export const isNamed = (environment: Environment) => environment.kind !== "bundle";

export function useEnvironments() {
  return useQuery({
    queryKey: ["environments"],
    queryFn: () => unwrap(api.GET("/v1/environments")),
    select: (found) => found.environments,
    staleTime: 30_000,
  });
}

export function useEnvironment(id: string) {
  return useQuery({
    queryKey: ["environment", id],
    queryFn: () => unwrap(api.GET("/v1/environments/{environment_id}", { params: { path: { environment_id: id } } })),
    staleTime: 60_000,
  });
}

/** The doctor's reports on an environment, newest first. */
export function useReports(id: string) {
  return useQuery({
    queryKey: ["reports", id],
    queryFn: () =>
      unwrap(api.GET("/v1/environments/{environment_id}/doctor", { params: { path: { environment_id: id } } })),
    select: (found) => found.reports,
    refetchInterval: (query) => (query.state.data?.reports.some(isGoing) ? 1_000 : false),
  });
}

/** One report, asked for until it is complete; null asks nothing. */
export function useReport(environment: string | null, report: string | null) {
  return useQuery({
    queryKey: ["reports", environment, report],
    queryFn: () =>
      unwrap(
        api.GET("/v1/environments/{environment_id}/doctor/{report_id}", {
          params: { path: { environment_id: environment ?? "", report_id: report ?? "" } },
        }),
      ),
    enabled: environment !== null && report !== null,
    refetchInterval: ({ state }) => (state.status === "error" || (state.data && !isGoing(state.data)) ? false : 1_000),
  });
}

export function isGoing(report: Report): boolean {
  return report.status === "queued" || report.status === "active";
}

export function useStartDoctor() {
  return useRenewing(
    ({ id, datasetPath, model }: { id: string; datasetPath?: string | null; model?: string | null }) =>
      unwrap(
        api.POST("/v1/environments/{environment_id}/doctor", {
          params: { path: { environment_id: id } },
          body: { datasetPath, model },
        }),
      ),
    ["reports"],
    ["environments"],
  );
}
