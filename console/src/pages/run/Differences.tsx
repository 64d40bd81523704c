// What was set differently in runs whose curves stand beside each other.
import { useQueries } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "../../api/client";
import { useRuns } from "../../api/queries";
import { Fold, format, Plain } from "../../ui";
import { useRun } from "./context";
import "./training.css";

/** A launch argument that was left to the trainer, or to no limit. */
export const NOT_SET = "not set";

export type Config = Schemas["RunConfig"];

export function Differences({ others }: { others: readonly string[] }) {
  const { id, run } = useRun();
  const runs = useRuns({}, { once: true, enabled: run.isOwner });
  const ids = [id, ...others];
  const configs = useQueries({ queries: ids.map(configQuery) }).map((each) => each.data);
  const name = (each: string) => (each === id ? "This run" : runs.data?.find((one) => one.id === each)?.name);
  if (configs.some((each) => each === undefined)) return null;
  const rows = differing(configs as Config[]);
  return (
    <Fold title="Settings that differ" aside={rows.length || "none"} open={rows.length > 0 && rows.length <= 6}>
      {rows.length === 0 ? (
        <p className="muted">These runs were launched with the same settings.</p>
      ) : (
        <section className="doses" tabIndex={0} aria-label="Settings that differ">
          <table>
            <thead>
              <tr>
                <th scope="col">Setting</th>
                {ids.map((each) => (
                  <th key={each} scope="col">
                    <Plain text={(name(each) ?? "other run").slice(0, 60)} />
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map(({ label, values }) => (
                <tr key={label}>
                  <th scope="row">{label}</th>
                  {values.map((value, index) => (
                    <td key={ids[index]}>
                      <Plain text={value} />
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </Fold>
  );
}

export function configQuery(id: string) {
  return {
    queryKey: ["run", id, "config"],
    queryFn: () => unwrap(api.GET("/v1/train/runs/{run_id}/config", { params: { path: { run_id: id } } })),
  };
}

/** The launch arguments that not all of them share, in the order of the first that has them. */
export function differing(configs: Config[]): { label: string; values: string[] }[] {
  const labels = new Map(configs.flatMap((config) => config.args.map((arg) => [arg.name, arg.label] as const)));
  return [...labels]
    .map(([name, label]) => ({ label, values: configs.map((config) => settingOf(config, name)) }))
    .filter(({ values }) => new Set(values).size > 1);
}

function settingOf(config: Config, name: string): string {
  const value: unknown = config.args.find((arg) => arg.name === name)?.value;
  if (value === null || value === undefined || value === "") return NOT_SET;
  return typeof value === "number" ? format.number(value, 4) : String(value);
}
