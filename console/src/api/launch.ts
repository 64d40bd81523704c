// Starting a run from the browser: the served arguments, their checks (the same as the server's), the launch.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "./client";
import { MIN_ROWS } from "./datasets.generated";
import { queries } from "./queries";
import { useRenewing } from "./renew";

export type LaunchArg = Schemas["LaunchArg"];
export type Value = string | number | boolean | null;

export { GOOD_ROWS, MIN_ROWS } from "./datasets.generated";

export function useLaunchArgs() {
  return useQuery({
    queryKey: ["launch-args"],
    queryFn: () => unwrap(api.GET("/v1/train/launch-args")),
    select: (found) => found.args,
    staleTime: 300_000,
  });
}

/** Another run to launch one like: its environment and rows, and what was given to it. */
export type LikeRun = { id: string; name: string; paths: Record<string, string>; given: Record<string, Value> };

export function useLikeRun(id: string | null) {
  return useQuery({
    queryKey: ["run", id, "as-launched"],
    queryFn: async (): Promise<LikeRun> => {
      const params = { params: { path: { run_id: id ?? "" } } };
      const [config, details] = await Promise.all([
        unwrap(api.GET("/v1/train/runs/{run_id}/config", params)),
        unwrap(api.GET("/v1/train/runs/{run_id}/details", params)),
      ]);
      const given = config.args.filter((arg) => arg.given).map((arg) => [arg.name, arg.value as Value]);
      return { id: details.id, name: details.name, paths: config.paths, given: Object.fromEntries(given) };
    },
    enabled: id !== null,
    staleTime: 300_000,
  });
}

export function useLaunch() {
  return useRenewing(
    (body: { name?: string; args: Record<string, unknown> }) =>
      unwrap(api.POST("/v1/train/runs/launch", { body: { type: "simple", extraSecrets: {}, ...body } })),
    ["runs"],
    ["datasets"],
    ["environments"],
  );
}

const warned = (runId: string) => ["launch-warnings", runId];

/** Keep what a launch warned of for the page of the run it leads to. */
export function rememberWarnings({ runId, warnings }: Schemas["Launched"]): void {
  queries.setQueryData(warned(runId), warnings);
}

export function useLaunchWarnings(runId: string): { warnings: readonly string[]; forget: () => void } {
  const client = useQueryClient();
  const { data } = useQuery({
    queryKey: warned(runId),
    queryFn: (): string[] => [],
    staleTime: Number.POSITIVE_INFINITY,
  });
  return { warnings: data ?? [], forget: () => client.setQueryData(warned(runId), []) };
}

/** What somebody typed, as the server wants it; undefined when it is no value of that kind. */
export function parsed(arg: LaunchArg, text: string): Value | undefined {
  if (text.trim() === "") return null;
  if (arg.type === "boolean") return text === "true";
  if (arg.type === "string") return text.trim();
  const value = Number(text.trim().replaceAll(",", ""));
  return Number.isFinite(value) ? value : undefined;
}

/** Why a value is refused, in words; null when it is fine. */
export function fault(arg: LaunchArg, text: string): string | null {
  const value = parsed(arg, text);
  if (value === undefined) return `Enter ${arg.type === "integer" ? "a whole" : "a"} number.`;
  if (value === null) return arg.required ? "A value is required." : null;
  if (typeof value !== "number") return null;
  if (arg.type === "integer" && !Number.isInteger(value)) return "Enter a whole number.";
  const low = arg.min ?? Number.NEGATIVE_INFINITY;
  const high = arg.max ?? Number.POSITIVE_INFINITY;
  if (value < low || value > high) return `Must be ${shownRange(arg)}.`;
  return null;
}

export function isHigh(arg: LaunchArg, text: string): boolean {
  const value = parsed(arg, text);
  return typeof value === "number" && arg.warnAbove != null && value > arg.warnAbove;
}

export function shownRange(arg: LaunchArg): string {
  const low = arg.min ?? null;
  const high = arg.max ?? null;
  if (low === null && high === null) return "";
  if (high === null || high >= 2 ** 31 - 1) return low === null ? "" : `${plain(low)} or more`;
  return low === null ? `up to ${plain(high)}` : `from ${plain(low)} to ${plain(high)}`;
}

function plain(value: number): string {
  return value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential() : value.toLocaleString("en-US");
}

/** How a default is shown. */
export function shown(value: unknown): string {
  return value === null || value === undefined ? "chosen for you" : String(value);
}

/** Rows to train on and rows held out, as the server splits them. */
export function split(rows: number, percent: number): { train: number; held: number } {
  const held = Math.max(0, Math.min(Math.floor((rows * percent) / 100 + 0.5 + 1e-9), rows - MIN_ROWS));
  return { train: rows - held, held };
}

/** Steps and rollouts a run will take at most. */
export function size(values: Record<string, Value>, rows: number): { steps: number; rollouts: number } {
  const number = (name: string, otherwise: number) =>
    typeof values[name] === "number" ? (values[name] as number) : otherwise;
  const prompts = number("prompts_per_step", 1);
  const steps = Math.max(1, Math.ceil((number("num_epochs", 1) * rows) / prompts));
  const most = number("max_steps", steps) || steps;
  const taken = Math.min(steps, most);
  return { steps: taken, rollouts: taken * prompts * number("group_size", 1) };
}
