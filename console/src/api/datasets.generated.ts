// Made from benchmax.limits and benchmax.envs.datasets by console/scripts/metrics.py: change it there.

/** Fewest rows a run is trained on. */
export const MIN_ROWS = 16;
/** From so many rows on a run has enough to learn from. */
export const GOOD_ROWS = 200;
/** Dataset files the server takes. */
export const SUFFIXES = [".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet"];
