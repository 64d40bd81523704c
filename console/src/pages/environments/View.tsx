// One environment: its source, its manifest, and what the doctor says.
import { type EnvironmentDetails, isNamed, useEnvironment } from "../../api/environments";
import {
  Card,
  Command,
  Empty,
  ErrorNote,
  Icon,
  Link,
  Note,
  Page,
  Pill,
  Plain,
  Skeleton,
  Tabs,
  Ticked,
  useSearch,
} from "../../ui";
import { Doctor } from "./Doctor";
import { EnvironmentFoot, Ready, trainCommand } from "./List";
import { Source } from "./Source";

const TABS = [
  { id: "source", label: "Source" },
  { id: "manifest", label: "Manifest" },
  { id: "doctor", label: "Doctor" },
];

export function EnvironmentView({ id }: { id: string }) {
  const environment = useEnvironment(id);
  const search = useSearch();
  const tab = search.get("tab", "source");
  const data = environment.data;
  return (
    <Page
      title={data ? <Plain text={data.name} /> : "Environment"}
      name={data?.name ?? "Environment"}
      crumbs={[{ label: "Environments", href: "/environments" }]}
      actions={
        <Link href={`/experiments/new?environment=${encodeURIComponent(id)}`} className="button">
          <Icon name="plus" /> New run with it
        </Link>
      }
    >
      {environment.isError && <ErrorNote error={environment.error} onRetry={() => environment.refetch()} />}
      {environment.isPending && <Skeleton lines={8} />}
      {data && (
        <>
          <div className="stack-tight">
            {data.description && (
              <p className="env-about">
                <Ticked text={data.description} />
              </p>
            )}
            <EnvironmentFoot environment={data} />
            <Ready environment={data} />
            {isNamed(data) && (
              <div>
                <Command text={trainCommand(data)} />
              </div>
            )}
          </div>
          {data.problems.map((problem) => (
            <Note key={problem} tone="bad">
              <Plain text={problem} />
            </Note>
          ))}
          <Tabs
            label="Parts of the environment"
            tabs={TABS}
            current={tab}
            onChange={(name) => search.set({ tab: name === "source" ? null : name })}
          />
          {tab === "doctor" ? (
            <Doctor id={id} bringsRows={data.bringsRows ?? false} />
          ) : tab === "manifest" ? (
            <Manifest environment={data} />
          ) : (
            <Source environment={data} />
          )}
        </>
      )}
    </Page>
  );
}

function Manifest({ environment }: { environment: EnvironmentDetails }) {
  const entries = Object.entries(environment.manifest).filter(([, value]) => !isEmpty(value));
  const known: [string, unknown][] = [
    ["class", environment.path],
    ["python", environment.pythonVersion],
    ["sha256", environment.digest],
  ];
  return (
    <div className="stack">
      {environment.suspicious.length > 0 && (
        <Note tone="warn">
          Opening it would use names that run commands or code: {environment.suspicious.join(", ")}. That may be
          legitimate; check the source.
        </Note>
      )}
      <Card title="Manifest">
        <dl className="manifest">
          {(entries.length ? entries : known).map(([name, value]) => (
            <div key={name} className="contents">
              <dt>{name.replaceAll("_", " ")}</dt>
              <dd>
                <code>
                  <Plain text={inWords(value)} />
                </code>
              </dd>
            </div>
          ))}
        </dl>
      </Card>
      {environment.kind === "bundle" && (
        <Card title="Modules it imports when opened">
          {environment.imports.length ? (
            <div className="row">
              {environment.imports.map((name) => (
                <Pill key={name}>
                  <Plain text={name} />
                </Pill>
              ))}
            </div>
          ) : (
            <Empty title="None" />
          )}
        </Card>
      )}
    </div>
  );
}

function isEmpty(value: unknown): boolean {
  if (value === null || value === "" || value === false) return true;
  return typeof value === "object" && Object.keys(value as object).length === 0;
}

function inWords(value: unknown): string {
  if (typeof value === "string") return value;
  return Array.isArray(value) ? value.map(inWords).join(", ") : JSON.stringify(value);
}
