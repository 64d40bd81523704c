// What will be launched, in a few lines, and the button.
import { useState } from "react";
import { datasetName } from "../../api/datasets";
import { useReport } from "../../api/environments";
import { MIN_ROWS, rememberWarnings, size, useLaunch } from "../../api/launch";
import { Button, Check, ErrorNote, Field, format, Input, Note, Plain, useGo } from "../../ui";
import { type Form, launchBody, missing, valuesOf } from "./form";

export function Launch({ form }: { form: Form }) {
  const launch = useLaunch();
  const go = useGo();
  const report = useReport(form.environment?.id ?? null, form.report);
  const [anyway, setAnyway] = useState(false);
  const sick = report.data?.status === "complete" && report.data.ok === false;
  const todo = missing(form);
  const tooFew = form.rows !== null && form.rows < MIN_ROWS;
  const blocked = todo.length > 0 || tooFew || (sick && !anyway);
  const start = () =>
    launch.mutate(launchBody(form), {
      onSuccess: (made) => {
        rememberWarnings(made);
        go(`/experiments/${made.runId}`);
      },
    });
  return (
    <aside className="launch" aria-label="What will be launched">
      <h2>Your run</h2>
      <Summary form={form} />
      <Field label="Name">
        {(id) => (
          <Input
            id={id}
            value={form.name}
            maxLength={300}
            placeholder={form.environment?.id.replace(/^env_.*/, "") || "a name to find it by"}
            onChange={(event) => form.set({ name: event.target.value })}
          />
        )}
      </Field>
      {sick && (
        <>
          <Note tone="bad">The doctor found errors: the model would learn nothing, or the wrong thing.</Note>
          <Check label="Launch it anyway" checked={anyway} onChange={(event) => setAnyway(event.target.checked)} />
        </>
      )}
      {launch.isError && <ErrorNote error={launch.error} />}
      <Button kind="primary" busy={launch.isPending} disabled={blocked} onClick={start}>
        Launch the run
      </Button>
      <p className="muted small" aria-live="polite">
        {todo[0] ??
          (tooFew
            ? `At least ${MIN_ROWS} rows are required.`
            : form.report || form.like
              ? ""
              : "Not examined by the doctor yet.")}
      </p>
    </aside>
  );
}

function Summary({ form }: { form: Form }) {
  const args = form.args.data ?? [];
  const values = valuesOf(args, form.typed);
  const plan = form.counts?.train ? size(values, form.counts.train) : null;
  const minutes = values.max_minutes;
  const changed = Object.keys(form.typed).length;
  return (
    <dl className="launch-facts">
      {form.like && <Line name="Like">{form.likeRun.data ? <Plain text={form.likeRun.data.name} /> : <None />}</Line>}
      {!form.like && <Chosen form={form} />}
      <Line name="Model">
        <Plain text={String(values.model ?? "–")} />
      </Line>
      {!form.like && (
        <>
          <Line name="Steps">{plan ? `${plan.steps.toLocaleString("en-US")} at most` : <None />}</Line>
          <Line name="Rollouts">{plan ? `${format.compact(plan.rollouts)} at most` : <None />}</Line>
        </>
      )}
      {typeof minutes === "number" && <Line name="Time">{format.duration(minutes * 60)} at most</Line>}
      <Line name="Settings">{changed ? `${changed} changed` : form.like ? "the same" : "defaults"}</Line>
    </dl>
  );
}

function Chosen({ form }: { form: Form }) {
  return (
    <>
      <Line name="Environment">{form.environment ? <Plain text={form.environment.name} /> : <None />}</Line>
      <Line name="Rows">
        {form.dataset ? (
          <Plain text={datasetName(form.dataset)} />
        ) : form.environment && !form.fromDataset ? (
          "its own"
        ) : (
          <None />
        )}
      </Line>
      <Line name="Split">
        {form.counts && form.counts.train > 0 ? (
          `${form.counts.train.toLocaleString("en-US")} + ${form.counts.held.toLocaleString("en-US")} held out`
        ) : (
          <None />
        )}
      </Line>
    </>
  );
}

function Line({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div className="contents">
      <dt>{name}</dt>
      <dd className="clip">{children}</dd>
    </div>
  );
}

function None() {
  return <span className="muted">–</span>;
}
