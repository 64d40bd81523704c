import { type Environment, isNamed, useEnvironments } from "../../api/environments";
import { Command, ErrorNote, format, Link, Page, Pill, Plain, Skeleton, Ticked, Time } from "../../ui";

export function EnvironmentList() {
  const environments = useEnvironments();
  const all = environments.data ?? [];
  const mine = all.filter((each) => each.kind === "bundle");
  const added = all.filter((each) => each.kind === "plugin");
  return (
    <Page title="Environments">
      {environments.isError && <ErrorNote error={environments.error} onRetry={() => environments.refetch()} />}
      {environments.isPending && <Skeleton lines={6} />}
      {environments.data && (
        <>
          <Group title="Yours">
            {mine.length ? (
              <Tiles of={mine} />
            ) : (
              <div className="stack-tight">
                <p className="env-about">
                  An environment is a Python class with rows, tools and rewards. It is uploaded when you launch a
                  project from its folder:
                </p>
                <div>
                  <Command text="benchmax launch" />
                </div>
              </div>
            )}
          </Group>
          {added.length > 0 && (
            <Group title="From installed packages">
              <Tiles of={added} />
            </Group>
          )}
          <Group title="Built in">
            <Tiles of={all.filter((each) => each.kind === "builtin")} />
          </Group>
        </>
      )}
    </Page>
  );
}

function Group({ title, children }: { title: string; children: React.ReactNode }) {
  return (
    <section className="env-group">
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function Tiles({ of }: { of: Environment[] }) {
  return (
    <div className="env-grid">
      {of.map((each) => (
        <Tile key={each.id} environment={each} />
      ))}
    </div>
  );
}

function Tile({ environment }: { environment: Environment }) {
  return (
    <Link href={`/environments/${encodeURIComponent(environment.id)}`} className="env-card">
      <h3>
        <Plain text={environment.name} />
      </h3>
      <p className="env-words">
        {environment.description ? (
          <Ticked text={environment.description} />
        ) : (
          "No description. A docstring of its class would appear here."
        )}
      </p>
      <Ready environment={environment} />
      {isNamed(environment) && <code className="env-train">{trainCommand(environment)}</code>}
      <EnvironmentFoot environment={environment} />
    </Link>
  );
}

/** Of a ready environment: the levels of its rows, and its tools. */
export function Ready({ environment }: { environment: Environment }) {
  const { datasets = [], tools } = environment;
  if (!isNamed(environment)) return null;
  return (
    <dl className="env-ready">
      {datasets.length > 0 && (
        <div>
          <dt>{datasets.length === 1 ? "rows" : "levels"}</dt>
          <dd>{datasets.join(", ")}</dd>
        </div>
      )}
      <div>
        <dt>tools</dt>
        <dd>{tools ? tools.join(", ") || "none" : "not known yet"}</dd>
      </div>
    </dl>
  );
}

/** What to type to train on a ready environment. */
export function trainCommand(environment: Environment): string {
  return `benchmax train ${environment.id}`;
}

const KINDS = { plugin: "plug-in", bundle: "bundle" };

/** Where it comes from, in a line. */
export function EnvironmentFoot({ environment }: { environment: Environment }) {
  return (
    <span className="env-foot">
      {environment.kind === "builtin" ? <Pill tone="info">built in</Pill> : <Pill>{KINDS[environment.kind]}</Pill>}
      {environment.ownRows ? <span>{format.plural(environment.ownRows, "row")} of its own</span> : null}
      {environment.tools?.length ? <span>{format.plural(environment.tools.length, "tool")}</span> : null}
      {environment.createdAt && (
        <span>
          uploaded <Time at={environment.createdAt} />
        </span>
      )}
    </span>
  );
}
