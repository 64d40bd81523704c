// What the run was asked for, which of it was a default, and every setting it became.
import { useQuery } from "@tanstack/react-query";
import { type Scalars, useScalars } from "../../api/scalars";
import { Card, Check, Copy, ErrorNote, Fold, format, Pill, Plain, SearchBox, Skeleton, useSearch } from "../../ui";
import { useRun } from "./context";
import { configQuery, NOT_SET } from "./Differences";

export default function Config() {
  const { id } = useRun();
  const search = useSearch();
  const config = useQuery(configQuery(id));
  const rate = lastRate(useScalars(id, "train").data);
  if (config.isError) return <ErrorNote error={config.error} onRetry={() => config.refetch()} />;
  if (config.isPending) return <Skeleton lines={8} />;
  const { args, paths, parent, settings } = config.data;
  const text = search.get("q").toLowerCase();
  const given = search.get("given") === "on";
  const fits = (...words: unknown[]) => words.some((word) => String(word).toLowerCase().includes(text));
  const shown = args.filter((arg) => fits(arg.name, arg.label, show(arg.value)) && (!given || arg.given));
  const known = rate ? withRate(settings ?? {}, rate) : (settings ?? {});
  const tree = Object.entries(known).map(
    ([section, values]) =>
      [section, flat(values).filter(([key, value]) => fits(`${section}.${key}`, show(value)))] as const,
  );
  return (
    <div className="stack">
      <div className="row">
        <SearchBox
          label="Filter settings"
          placeholder="Filter settings"
          value={search.get("q")}
          onChange={(event) => search.set({ q: event.target.value })}
        />
        <Check
          label="Only given settings"
          checked={given}
          onChange={(event) => search.set({ given: event.target.checked ? "on" : null })}
        />
        <span className="grow" />
        <Copy text={() => JSON.stringify(config.data, null, 2)} label="Copy all as JSON">
          Copy JSON
        </Copy>
      </div>
      <div className="config">
        <Card title="As launched">
          <dl className="tree">
            {shown.map((arg) => (
              <Row
                key={arg.name}
                name={arg.label}
                raw={arg.name}
                value={arg.value ?? NOT_SET}
                note={arg.name === "learning_rate" && rate ? `${show(rate.value)} ${rate.when}` : undefined}
                mark={arg.given ? <Pill tone="info">given</Pill> : <span className="muted small">default</span>}
              />
            ))}
            {Object.entries(paths).map(([name, value]) => (
              <Row key={name} name={name.replace(/_/g, " ")} raw={name} value={value} />
            ))}
            {Object.entries(parent).map(([name, value]) => (
              <Row key={name} name={`from ${name}`} raw={name} value={value} />
            ))}
          </dl>
        </Card>
        <div className="stack">
          {settings === null && <p className="muted">All trainer settings appear here once it has started.</p>}
          {tree.map(
            ([section, rows]) =>
              rows.length > 0 && (
                <Fold key={section} title={section} aside={`${rows.length}`} open>
                  <dl className="tree">
                    {rows.map(([key, value]) => (
                      <Row key={key} name={key} raw={`${section}.${key}`} value={value} />
                    ))}
                  </dl>
                </Fold>
              ),
          )}
        </div>
      </div>
    </div>
  );
}

type Rate = { value: number; when: string };

/** The learning rate of the last update: steps whose samples all earn the same make none, so it may be an earlier step. */
function lastRate(scalars: Scalars | undefined): Rate | null {
  const rate = scalars?.get("lr");
  const [step, value] = [rate?.x.at(-1), rate?.y.at(-1)];
  if (!scalars || step === undefined || value === undefined) return null;
  const ended = Math.max(...[...scalars.values()].map((series) => series.x.at(-1) ?? 0));
  return { value, when: `in step ${format.number(step)}${ended > step ? ", the last with an update" : ""}` };
}

/** With the learning rate that was used last: warm-up, decay and cooling change what was set. */
function withRate(settings: Record<string, unknown>, { value, when }: Rate): Record<string, unknown> {
  const optim = typeof settings.optim === "object" ? settings.optim : {};
  return { ...settings, optim: { ...optim, [`lr ${when}`]: value } };
}

function Row({
  name,
  raw,
  value,
  note,
  mark,
}: {
  name: string;
  raw: string;
  value: unknown;
  note?: string;
  mark?: React.ReactNode;
}) {
  return (
    <>
      <dt title={raw}>
        <Plain text={name} />
      </dt>
      <dd>
        <span className="mono">
          <Plain text={show(value)} />
          {note && <span className="muted"> · {note}</span>}
        </span>
        {mark}
      </dd>
    </>
  );
}

function show(value: unknown): string {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : format.number(value, 4);
  return typeof value === "string" ? value : JSON.stringify(value);
}

function flat(value: unknown, prefix = ""): [string, unknown][] {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return [[prefix || "value", value]];
  return Object.entries(value).flatMap(([key, inner]) => flat(inner, prefix ? `${prefix}.${key}` : key));
}
