// A run from the browser: an environment, rows, settings, the doctor's word, launch. Nothing is lost on reload.
import type { ReactNode } from "react";
import { useReport } from "../api/environments";
import { MIN_ROWS } from "../api/launch";
import { Button, Card, cx, ErrorNote, Icon, Link, Page, Plain, Skeleton } from "../ui";
import { Arguments } from "./newrun/Arguments";
import { CheckUp } from "./newrun/CheckUp";
import { ChooseData } from "./newrun/ChooseData";
import { ChooseEnvironment } from "./newrun/ChooseEnvironment";
import { type Form, faulty, useForm } from "./newrun/form";
import { Launch } from "./newrun/Launch";
import "./environments/environments.css";
import "./newrun/newrun.css";

export default function NewRun() {
  const form = useForm();
  const report = useReport(form.environment?.id ?? null, form.report);
  const hasRows = form.rows !== null && form.rows >= MIN_ROWS && form.unusable === 0;
  return (
    <Page title="New run" crumbs={[{ label: "Runs", href: "/experiments" }]}>
      <div className="newrun">
        <div className="newrun-steps">
          {form.like ? (
            <Step number={1} title="Environment and rows" done={form.likeRun.data !== undefined}>
              <AsIn form={form} />
            </Step>
          ) : (
            <>
              <Step number={1} title="Environment" done={form.environment !== null}>
                <ChooseEnvironment form={form} />
              </Step>
              <Step number={2} title="Rows" done={form.environment !== null && hasRows}>
                <ChooseData form={form} />
              </Step>
            </>
          )}
          <Step
            number={form.like ? 2 : 3}
            title="Settings"
            done={Object.keys(form.typed).length > 0 && faulty(form).length === 0}
          >
            <Arguments form={form} />
          </Step>
          {!form.like && (
            <Step number={4} title="Doctor" done={report.data?.status === "complete" && report.data.ok === true}>
              <CheckUp form={form} />
            </Step>
          )}
        </div>
        <Launch form={form} />
      </div>
    </Page>
  );
}

/** The environment and the rows of another run, as they were when it was launched. */
function AsIn({ form }: { form: Form }) {
  const { data, error, isPending, refetch } = form.likeRun;
  if (isPending) return <Skeleton lines={2} />;
  return (
    <div className="stack-tight">
      {error && <ErrorNote error={error} onRetry={() => refetch()} />}
      {data && (
        <p>
          Taken from{" "}
          <Link href={`/experiments/${encodeURIComponent(data.id)}`}>
            <Plain text={data.name} />
          </Link>
          , as they were at its launch. Its settings are below: change what should differ.
        </p>
      )}
      <div>
        <Button size="small" onClick={() => form.choose({ like: null })}>
          Choose different ones
        </Button>
      </div>
    </div>
  );
}

function Step({
  number,
  title,
  done,
  children,
}: {
  number: number;
  title: string;
  done: boolean;
  children: ReactNode;
}) {
  return (
    <Card
      title={
        <span className="step-title">
          <span className={cx("step-number", done && "step-done")} aria-hidden="true">
            {done ? <Icon name="check" size={12} /> : number}
          </span>
          {title}
        </span>
      }
    >
      {children}
    </Card>
  );
}
