import { isGoing, useReport, useStartDoctor } from "../../api/environments";
import { Button, ErrorNote, Icon } from "../../ui";
import { LiveReport } from "../environments/Doctor";
import { type Form, missing } from "./form";

/** The doctor's findings on what is chosen. */
export function CheckUp({ form }: { form: Form }) {
  const start = useStartDoctor();
  const report = useReport(form.environment?.id ?? null, form.report);
  const ready = form.environment !== null && (form.dataset !== null || !form.fromDataset);
  const going = form.report !== null && (report.data === undefined || isGoing(report.data)) && !report.isError;
  const run = () => {
    if (!form.environment) return;
    const given = { id: form.environment.id, datasetPath: form.dataset };
    start.mutate(given, { onSuccess: (made) => form.set({ report: made.reportId }) });
  };
  return (
    <div className="stack">
      <div className="row">
        <Button icon={<Icon name="play" />} onClick={run} busy={start.isPending || going} disabled={!ready}>
          {form.report ? "Examine again" : "Examine it"}
        </Button>
        <span className="muted">
          {ready
            ? "The doctor plays the environment with made-up answers, in seconds, before any GPU is used."
            : missing(form)[0]}
        </span>
      </div>
      {start.isError && <ErrorNote error={start.error} />}
      {form.environment && form.report && <LiveReport environment={form.environment.id} report={form.report} />}
    </div>
  );
}
