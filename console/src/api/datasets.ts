// Datasets: your uploaded rows.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, request, type Schemas, unwrap } from "./client";
import { useRenewing } from "./renew";

export type Dataset = Schemas["DatasetInfo"];
export type Preview = Schemas["DatasetPreview"];
export type RowIssue = Schemas["DatasetIssue"];

export function useDatasets() {
  return useQuery({
    queryKey: ["datasets"],
    queryFn: () => unwrap(api.GET("/v1/datasets")),
    select: (found) => found.datasets,
  });
}

/** The first rows and every problem; `environment` is one whose columns the rows have, "" none. */
export function usePreview(path: string | null, environment?: string, limit = 100) {
  return useQuery({
    queryKey: ["dataset", path, environment ?? null, limit],
    queryFn: () =>
      unwrap(api.GET("/v1/datasets/preview", { params: { query: { path: path ?? "", environment, limit } } })),
    enabled: path !== null,
    placeholderData: (before) => (before?.path === path ? keepPreviousData(before) : undefined),
  });
}

export function useUpload() {
  return useRenewing(
    ({ file, environment }: { file: File; environment?: string }) => {
      const query = new URLSearchParams({ name: file.name, ...(environment ? { environment } : {}) });
      return request<Preview>("POST", `/v1/datasets?${query}`, file);
    },
    ["datasets"],
    ["dataset"],
  );
}

export function useDeleteDataset() {
  return useRenewing(
    (path: string) => unwrap(api.DELETE("/v1/datasets", { params: { query: { path } } })),
    ["datasets"],
  );
}

export function useAddRow() {
  return useRenewing(
    (body: { path: string; row: Record<string, unknown>; create: boolean }) =>
      unwrap(api.POST("/v1/datasets/rows", { body })),
    ["datasets"],
    ["dataset"],
  );
}

/** `datasets/sums.csv` → `sums.csv`; other folders are kept. */
export function datasetName(path: string): string {
  return path.replace(/^datasets\//, "");
}

export function datasetHref(path: string, environment?: string): string {
  const page = `/datasets/${path.split("/").map(encodeURIComponent).join("/")}`;
  return environment ? `${page}?environment=${encodeURIComponent(environment)}` : page;
}
