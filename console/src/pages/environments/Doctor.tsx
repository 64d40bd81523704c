// The doctor: run it on rows, and read what it found, worst first.
import { datasetName, useDatasets } from "../../api/datasets";
import {
  type DoctorFinding,
  isGoing,
  type Report,
  useReport,
  useReports,
  useStartDoctor,
} from "../../api/environments";
import { useLaunchArgs } from "../../api/launch";
import {
  Button,
  Card,
  Copy,
  Empty,
  ErrorNote,
  Field,
  Fold,
  format,
  Icon,
  Note,
  Num,
  Pill,
  Plain,
  Select,
  Spinner,
  Ticked,
  Time,
  useSearch,
} from "../../ui";
import { SignalView } from "./SignalView";
import { Code } from "./Source";

/** The doctor tab of an environment: which rows, which model, run, the report, older ones. */
export function Doctor({ id, bringsRows }: { id: string; bringsRows: boolean }) {
  const search = useSearch();
  const datasets = useDatasets();
  const reports = useReports(id);
  const start = useStartDoctor();
  const models = useLaunchArgs().data?.find((arg) => arg.name === "model")?.enum ?? [];
  const rows = search.get("rows");
  const model = search.get("model");
  const chosen = search.get("report");
  const report = reports.data?.find((each) => each.id === chosen) ?? reports.data?.[0];
  const run = () =>
    start.mutate(
      { id, datasetPath: rows || null, model: model || null },
      { onSuccess: (made) => search.set({ report: made.reportId }) },
    );
  return (
    <div className="stack">
      <div className="doctor-bar">
        <Field label="Rows to examine it on">
          {(field) => (
            <Select id={field} value={rows} onChange={(event) => search.set({ rows: event.target.value })}>
              <option value="">{bringsRows ? "Its own rows" : "Choose a dataset"}</option>
              {(datasets.data ?? []).map((each) => (
                <option key={each.path} value={each.path}>
                  {datasetName(each.path)}
                </option>
              ))}
            </Select>
          )}
        </Field>
        {models.length > 0 && (
          <Field label="Model to try it with">
            {(field) => (
              <Select id={field} value={model} onChange={(event) => search.set({ model: event.target.value })}>
                <option value="">None (takes seconds)</option>
                {models.map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </Select>
            )}
          </Field>
        )}
        <Button
          kind="primary"
          icon={<Icon name="play" />}
          busy={start.isPending}
          disabled={(!bringsRows && !rows) || (report && isGoing(report))}
          onClick={run}
        >
          Run the doctor
        </Button>
        {(reports.data?.length ?? 0) > 1 && (
          <Field label="Report">
            {(field) => (
              <Select
                id={field}
                value={report?.id ?? ""}
                onChange={(event) => search.set({ report: event.target.value })}
              >
                {reports.data?.map((each) => (
                  <option key={each.id} value={each.id}>
                    {new Date(each.createdAt).toLocaleString()}
                  </option>
                ))}
              </Select>
            )}
          </Field>
        )}
      </div>
      {start.isError && <ErrorNote error={start.error} />}
      {reports.isError && <ErrorNote error={reports.error} onRetry={() => reports.refetch()} />}
      {report ? (
        <ReportView report={report} />
      ) : (
        reports.data && (
          <Empty
            title="Not examined yet"
            icon="check"
            command={bringsRows ? `benchmax validate ${id}` : "benchmax validate main.py"}
          >
            The doctor plays the environment with made-up answers, right and wrong, and reports what would go wrong in
            training. Nothing is trained and no model is needed; if you choose one, it plays some rows, and the report
            says whether it can learn from them.
          </Empty>
        )
      )}
    </div>
  );
}

/** A report that is asked for until it is complete. */
export function LiveReport({ environment, report }: { environment: string; report: string }) {
  const found = useReport(environment, report);
  if (found.isError) return <ErrorNote error={found.error} onRetry={() => found.refetch()} />;
  return found.data ? <ReportView report={found.data} short /> : <Spinner label="Loading the report …" />;
}

const GROUPS = [
  { severity: "error", title: "Errors", icon: "warn" },
  { severity: "warning", title: "Warnings", icon: "warn" },
  { severity: "info", title: "Notes", icon: "info" },
] as const;

export function ReportView({ report, short }: { report: Report; short?: boolean }) {
  if (isGoing(report)) {
    return (
      <Note tone="info">
        <Spinner label={report.status === "queued" ? "Waiting for a runner …" : `${examining(report)} …`} />
      </Note>
    );
  }
  if (report.status === "failed") {
    return (
      <ErrorNote title="The doctor could not finish" error={new Error(report.statusReason || "No reason given.")} />
    );
  }
  return (
    <div className="stack">
      <Verdict report={report} />
      {report.signal && (
        <Card title={<Tried report={report} />}>
          <SignalView signal={report.signal} />
        </Card>
      )}
      {GROUPS.map(({ severity, title, icon }) => {
        const found = (report.findings ?? []).filter((each) => each.severity === severity);
        return found.length ? (
          <Card key={severity} flush title={`${title} (${found.length})`}>
            {found.map((each, index) => (
              <Finding key={index} finding={each} icon={icon} />
            ))}
          </Card>
        ) : null;
      })}
      {!short && <More report={report} />}
    </div>
  );
}

function examining(report: Report): string {
  return report.model ? `Examining the environment, then trying it with ${report.model}` : "Examining the environment";
}

function Tried({ report }: { report: Report }) {
  return report.model ? (
    <>
      Can <Plain text={report.model} /> learn from it?
    </>
  ) : (
    "Can the model learn from it?"
  );
}

function Finding({ finding, icon }: { finding: DoctorFinding; icon: string }) {
  return (
    <div className={`finding finding-${finding.severity}`}>
      <Icon name={icon} />
      <div className="finding-body">
        <span>
          <strong>
            <Ticked text={finding.title} />
          </strong>{" "}
          <span className="finding-id">{finding.check}</span>
        </span>
        {finding.evidence && (
          <pre>
            <Plain text={finding.evidence} />
          </pre>
        )}
        {finding.fix && (
          <span className="finding-fix">
            → <Ticked text={finding.fix} />
          </span>
        )}
        {finding.code && (
          <div className="finding-code">
            <div className="spread muted small">
              Python to paste and adapt
              <Copy text={finding.code} label="Copy the code">
                Copy
              </Copy>
            </div>
            <Code text={finding.code} label="Python to paste and adapt" />
          </div>
        )}
      </div>
    </div>
  );
}

function Verdict({ report }: { report: Report }) {
  const errors = (report.findings ?? []).filter((each) => each.severity === "error").length;
  const warnings = (report.findings ?? []).filter((each) => each.severity === "warning").length;
  const tone = errors ? "bad" : warnings ? "warn" : "good";
  return (
    <Note tone={tone}>
      <div className="doctor-verdict">
        <strong>
          {errors
            ? `${format.plural(errors, "error")}: fix them before training`
            : warnings
              ? `Usable, with ${format.plural(warnings, "warning")}`
              : "Healthy"}
        </strong>
        <span>
          {format.plural(report.rows ?? 0, "row")} read, {format.plural(report.examples ?? 0, "example")} played in{" "}
          {format.duration(report.seconds)}
        </span>
        <Time at={report.endedAt} />
      </div>
    </Note>
  );
}

const MARKS: Record<string, { icon: string; tone: string }> = {
  passed: { icon: "check", tone: "good" },
  error: { icon: "close", tone: "bad" },
  warning: { icon: "warn", tone: "warn" },
  info: { icon: "info", tone: "soft" },
};

/** What was checked, and how the rewards of made-up answers compare. */
function More({ report }: { report: Report }) {
  const components = report.components ?? [];
  const probes = [...new Set(components.flatMap((each) => Object.keys(each.byProbe)))];
  return (
    <>
      {components.length > 0 && (
        <Card title="Rewards of made-up answers">
          <div className="probe">
            <table>
              <thead>
                <tr>
                  <th>Component</th>
                  {probes.map((probe) => (
                    <th key={probe}>{probe}</th>
                  ))}
                  <th>Mean</th>
                  <th>Range</th>
                </tr>
              </thead>
              <tbody>
                {components.map((each) => (
                  <tr key={each.name}>
                    <td>
                      <Plain text={each.name} />
                    </td>
                    {probes.map((probe) => (
                      <td key={probe}>
                        <Num value={each.byProbe[probe]} digits={2} />
                      </td>
                    ))}
                    <td>
                      <Num value={each.mean} digits={2} />
                    </td>
                    <td>
                      {format.number(each.low, 2)} … {format.number(each.high, 2)}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
      {(report.checks ?? []).length > 0 && (
        <Fold title="All checks" aside={format.plural(report.checks?.length ?? 0, "check")}>
          <ul className="checks">
            {report.checks?.map((each) => {
              const mark = MARKS[each.state] ?? { icon: "more", tone: "muted" };
              return (
                <li key={each.id} title={each.note}>
                  <span className={mark.tone}>
                    <Icon name={mark.icon} size={13} />
                  </span>
                  <span>
                    {each.title} {!MARKS[each.state] && <span className="muted">({each.state})</span>}
                  </span>
                </li>
              );
            })}
          </ul>
        </Fold>
      )}
      {(report.tools ?? []).length > 0 && (
        <div className="row">
          <span className="muted">Tools:</span>
          {report.tools?.map((tool) => (
            <Pill key={tool}>
              <Plain text={tool} />
            </Pill>
          ))}
        </div>
      )}
    </>
  );
}
