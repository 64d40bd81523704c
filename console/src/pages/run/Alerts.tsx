// What needs a look: what the launch warned of, and what the watchdogs said since. Each can be put away once it was read.
import { useState } from "react";
import { useLaunchWarnings } from "../../api/launch";
import { useAlerts } from "../../api/queries";
import { shownStep } from "../../api/steps";
import { Button, Note, Plain, useStored } from "../../ui";
import { useRun } from "./context";

export function Alerts() {
  const { id } = useRun();
  const alerts = useAlerts(id);
  const [all, setAll] = useState(false);
  // The newest alert that was put away: what comes later shows again.
  const [read, setRead] = useStored(`alerts-read.${id}`, 0);
  const found = (alerts.data?.events ?? []).filter((event) => event.id > read);
  const last = found.at(-1);
  if (!last) return null;
  const shown = all ? [...found].reverse() : [last];
  return (
    <div className="stack-tight">
      {shown.map((event, index) => (
        <Note
          key={event.id}
          tone="warn"
          actions={
            index === 0 && (
              <span className="row-tight">
                {found.length > 1 && (
                  <Button size="small" kind="quiet" aria-expanded={all} onClick={() => setAll(!all)}>
                    {all ? "Only the last" : `${found.length - 1} more`}
                  </Button>
                )}
                <Button size="small" kind="quiet" onClick={() => setRead(last.id)}>
                  {found.length > 1 ? "Put all away" : "Put away"}
                </Button>
              </span>
            )
          }
        >
          {typeof event.data.step === "number" && <span className="alert-step">step {shownStep("train", event.data.step)}</span>}
          <Plain text={event.message} />
        </Note>
      ))}
    </div>
  );
}

/** What the server thought worth saying of the launch that led here. */
export function LaunchWarnings() {
  const { id } = useRun();
  const { warnings, forget } = useLaunchWarnings(id);
  return warnings.map((text) => (
    <Note
      key={text}
      tone="info"
      actions={
        <Button size="small" kind="quiet" onClick={forget}>
          Put away
        </Button>
      }
    >
      <Plain text={text} />
    </Note>
  ));
}
