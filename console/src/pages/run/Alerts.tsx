// What needs a look: what the launch warned of, and what the watchdogs said since. Each can be dismissed once it was read.
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { useLaunchWarnings } from "../../api/launch";
import { useAlerts } from "../../api/queries";
import { shownStep } from "../../api/steps";
import { Button, Link, Note, Ticked, useStored } from "../../ui";
import { useRun } from "./context";

type RunEvent = Schemas["RunEvent"];

export function Alerts({ unread: { found, dismiss } }: { unread: Unread }) {
  const [all, setAll] = useState(false);
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
                    {all ? "Only the latest" : `${found.length - 1} more`}
                  </Button>
                )}
                <Button size="small" kind="quiet" onClick={() => dismiss(last)}>
                  {found.length > 1 ? "Dismiss all" : "Dismiss"}
                </Button>
              </span>
            )
          }
        >
          {typeof event.data.step === "number" && (
            <span className="alert-step">step {shownStep("train", event.data.step)}</span>
          )}
          <Ticked text={event.message} /> <Shows event={event}>See its rollouts</Shows>
        </Note>
      ))}
    </div>
  );
}

/** A link to the rollouts that show it: the first one open among those of its step. */
export function Shows({ event, children }: { event: RunEvent; children: string }) {
  const { tabHref } = useRun();
  const { step, rollouts } = event.data;
  if (typeof step !== "number") return null;
  const first = Array.isArray(rollouts) && typeof rollouts[0] === "string" ? rollouts[0] : undefined;
  return <Link href={tabHref("rollouts", { mode: "train", step, rollout: first })}>{children}</Link>;
}

export type Unread = ReturnType<typeof useUnread>;

/** Alerts that were not dismissed, the newest last: what comes after the last that was dismissed shows again. */
export function useUnread() {
  const { id } = useRun();
  const alerts = useAlerts(id);
  const [read, setRead] = useStored(`alerts-read.${id}`, 0);
  const found = (alerts.data?.events ?? []).filter((event) => event.id > read);
  return { found, dismiss: (last: RunEvent) => setRead(last.id) };
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
          Dismiss
        </Button>
      }
    >
      <Ticked text={text} />
    </Note>
  ));
}
