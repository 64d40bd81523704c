// The top of a run's page: what it does now, how far it is, whether it learns, and what needs a look.
import { type CSSProperties, useMemo, useState } from "react";
import type { Schemas } from "../../api/client";
import { useChangeRun, useRunAction, useRuns } from "../../api/queries";
import { useScalars } from "../../api/scalars";
import { shownStep } from "../../api/steps";
import { useTraining } from "../../api/training";
import {
  Button,
  Chip,
  Command,
  Confirm,
  Copy,
  cx,
  Dialog,
  ErrorNote,
  Field,
  Fold,
  format,
  Icon,
  Input,
  Link,
  Menu,
  Note,
  Num,
  Plain,
  TextArea,
  Ticked,
  useGo,
  useNarrow,
  useNow,
} from "../../ui";
import { fixed } from "../runs/columns";
import { isStarting, meaning, StatusPill } from "../runs/status";
import { Alerts, LaunchWarnings, type Unread, useUnread } from "./Alerts";
import { useRun } from "./context";
import { DoctorsWord, InShort } from "./InShort";
import "./run.css";
import { doing } from "./words";

type Run = Schemas["RunDetails"];

/** In full where the curves are; a line elsewhere, so that what was asked for comes first. */
export function Header({ tab }: { tab: string }) {
  const { run } = useRun();
  const unread = useUnread();
  const alerts = unread.found.length;
  if (tab === "train") return <Whole run={run} unread={unread} />;
  return (
    <Fold title={<Brief run={run} />} aside={alerts > 0 && format.plural(alerts, "alert")}>
      <div className="stack">
        <Whole run={run} unread={unread} />
      </div>
    </Fold>
  );
}

function Brief({ run }: { run: Run }) {
  const { latestStep: latest, totalSteps: total } = run;
  return (
    <span className="run-brief">
      <StatusPill run={run} />
      {latest !== null && (
        <span className="num">
          step {format.number(shownStep("train", latest))}
          {total !== null && <span className="muted"> / {format.number(total)}</span>}
        </span>
      )}
      {run.rewardLatest != null && <span className="num">reward {run.rewardLatest.toFixed(3)}</span>}
      {run.evalRewardLatest != null && <span className="num">eval {run.evalRewardLatest.toFixed(3)}</span>}
    </span>
  );
}

function Whole({ run, unread }: { run: Run; unread: Unread }) {
  const { live } = useRun();
  // Where not all is in sight, what came of a run comes before its numbers; while it goes on, how far it is.
  const first = useNarrow() && !live;
  return (
    <>
      {first && <InShort />}
      <Tiles run={run} />
      <Failure run={run} />
      {!first && <InShort />}
      <LaunchWarnings />
      <Alerts unread={unread} />
      {run.notes && (
        <p className="muted small run-notes">
          <Plain text={run.notes} />
        </p>
      )}
    </>
  );
}

/** Why it ended and what to do about that, in whole; the tile has room for its beginning. */
function Failure({ run }: { run: Run }) {
  const { tabHref } = useRun();
  if (!hasFailed(run)) return null;
  const [what, ...rest] = run.statusReason.split("\n");
  return (
    <Note
      tone={run.status === "failed" ? "bad" : "warn"}
      actions={run.isOwner && <Link href={tabHref("logs")}>Read its log</Link>}
    >
      <Ticked text={what ?? ""} />
      {rest.length > 0 && (
        <pre className="run-why">
          <Plain text={rest.join("\n")} />
        </pre>
      )}
      {run.isOwner && run.rewardLatest == null && (
        <div className="run-doctor">
          <DoctorsWord />
        </div>
      )}
    </Note>
  );
}

function hasFailed(run: Run): boolean {
  return (run.status === "failed" || run.status === "stalled") && run.statusReason !== "";
}

/** The run's name and its tags. */
export function Title({ run }: { run: Run }) {
  return (
    <span className="run-title">
      <Plain text={run.name} />
      {run.tags.map((tag) => (
        <Chip key={tag}>
          <Plain text={tag} />
        </Chip>
      ))}
      {run.isPublic && <Chip>public</Chip>}
      {run.parentRunId && (
        <Link className="run-parent" href={`/experiments/${encodeURIComponent(run.parentRunId)}`}>
          <Icon name="fork" size={13} /> from <Parent id={run.parentRunId} ours={run.isOwner} />
        </Link>
      )}
    </span>
  );
}

/** The name of the run it was forked from, where that is ours and still there. */
function Parent({ id, ours }: { id: string; ours: boolean }) {
  const runs = useRuns({}, { once: true, enabled: ours });
  return <Plain text={(runs.data?.find((each) => each.id === id)?.name ?? "another run").slice(0, 60)} />;
}

function Tiles({ run }: { run: Run }) {
  const { live } = useRun();
  const now = useNow(1000);
  const started = run.startedAt ? new Date(run.startedAt).getTime() : null;
  const elapsed = live && started ? (now - started) / 1000 : run.elapsedSeconds;
  return (
    <dl className="tiles">
      <Tile name="Status">
        <StatusPill run={run} />
        <Small>
          {run.status === "active" && run.latestStep === null ? <Beginning run={run} /> : <Plain text={told(run)} />}
        </Small>
      </Tile>
      <Tile name="Step">
        <Step run={run} />
      </Tile>
      <Reward name="Reward" mode="train" first={run.rewardFirst} latest={run.rewardLatest} />
      <Reward name="Eval reward" mode="eval" first={run.evalRewardFirst} latest={run.evalRewardLatest} />
      <Tile name={live ? "Elapsed" : "Took"}>
        <b>{format.duration(elapsed)}</b>
        <Small>
          {live
            ? run.etaSeconds === null || run.etaSeconds === undefined
              ? "no estimate yet"
              : run.etaSeconds < 1
                ? "finishing"
                : `about ${format.duration(run.etaSeconds)} left`
            : run.endedAt
              ? `ended ${format.ago(run.endedAt, now)}`
              : ""}
        </Small>
      </Tile>
      <CutOff run={run} />
      <Tile name="Failed rollouts">
        <b className={cx((run.errorRate ?? 0) > 0.05 && "bad")}>{format.percent(run.errorRate)}</b>
        <Small>{run.errorCount ? `${format.compact(run.errorCount)} in total` : "none so far"}</Small>
      </Tile>
      {live && <Heartbeat at={run.heartbeatAt} now={now} />}
    </dl>
  );
}

/** What the run says of itself, or what its status means. */
function told(run: Run): string {
  if (hasFailed(run)) return meaning(run).means;
  const said = (run.status === "active" ? run.latestActivityMessage : run.statusReason) || run.latestActivityMessage;
  return said && said !== run.status && !isStarting(run) ? said : meaning(run).means;
}

/** What it does before the first step. */
function Beginning({ run }: { run: Run }) {
  return <Plain text={doing(useTraining(run.id)) ?? told(run)} />;
}

/** Answers that reached the token limit: they were not ended by the model. */
function CutOff({ run }: { run: Run }) {
  const share = useScalars(run.id, "train").data?.get("truncated")?.y.at(-1) ?? null;
  return (
    <Tile name="Cut off by length">
      <b className={cx((share ?? 0) > 0.5 && "bad")}>{format.percent(share)}</b>
      <Small>{share === null ? "nothing yet" : share > 0.5 ? "more than half" : "in the last step"}</Small>
    </Tile>
  );
}

function Tile({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div className="tile">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Small({ children }: { children: React.ReactNode }) {
  return <span className="tile-small">{children}</span>;
}

function Step({ run }: { run: Run }) {
  if (run.latestStep === null) return <b className="muted">–</b>;
  const total = run.totalSteps;
  const done = Math.min(run.latestStep + 1, total ?? Number.POSITIVE_INFINITY);
  const of = total === null ? "" : ` / ${total < 100_000 ? total.toLocaleString("en-US") : format.compact(total)}`;
  return (
    <>
      <b className="tile-steps" style={{ "--letters": format.number(done).length + of.length } as CSSProperties}>
        <Num value={done} />
        {total !== null && (
          <span className="muted" title={total.toLocaleString("en-US")}>
            {of}
          </span>
        )}
      </b>
      {total !== null && (
        <span className="bar tile-bar">
          <i style={{ width: `${(done / total) * 100}%` }} />
        </span>
      )}
    </>
  );
}

/** The reward now, what it has gained, and the best it was when it has fallen from there. */
function Reward({
  name,
  mode,
  first,
  latest,
}: {
  name: string;
  mode: "train" | "eval";
  first?: number | null;
  latest?: number | null;
}) {
  const best = useBest(mode);
  const known = latest !== null && latest !== undefined;
  const delta = first === null || first === undefined || !known ? null : latest - first;
  return (
    <Tile name={name}>
      <b>{known ? latest.toFixed(3) : <span className="muted">–</span>}</b>
      <Small>
        {delta === null ? (
          "nothing yet"
        ) : (
          <>
            <span className={delta > 0 ? "good" : delta < 0 ? "bad" : undefined}>{fixed(delta)}</span> since{" "}
            {mode === "train" ? "step 1" : "the start"}
          </>
        )}
      </Small>
      {best && known && best.value - latest > 0.0005 && (
        <Small>
          best {best.value.toFixed(3)}, {best.step === 0 ? "before training" : `step ${format.number(best.step)}`}
        </Small>
      )}
    </Tile>
  );
}

/** The highest mean reward, and the step of it as it is shown. */
function useBest(mode: "train" | "eval"): { value: number; step: number } | null {
  const series = useScalars(useRun().id, mode).data?.get("reward/mean");
  return useMemo(() => {
    if (!series?.y.length) return null;
    const at = series.y.reduce((best, value, index) => (value > series.y[best]! ? index : best), 0);
    return { value: series.y[at]!, step: series.x[at]! };
  }, [series]);
}

function Heartbeat({ at, now }: { at: string | null | undefined; now: number }) {
  const age = at ? (now - new Date(at).getTime()) / 1000 : null;
  return (
    <Tile name="Last report">
      <b className={cx(age !== null && age > 120 && "bad")}>
        {age === null ? <span className="muted">–</span> : format.duration(age)}
      </b>
      <Small>{age === null ? "none yet" : age > 120 ? "longer than usual" : "ago"}</Small>
    </Tile>
  );
}

/** What the owner may do. */
export function Actions() {
  const { id, run, live } = useRun();
  const change = useChangeRun();
  const action = useRunAction();
  const go = useGo();
  const [asking, setAsking] = useState<"cancel" | "delete" | "edit" | "publish" | "save" | null>(null);
  const close = () => setAsking(null);
  const act = (name: "cancel" | "resume" | "delete") =>
    action.mutate({ id, action: name }, { onSuccess: () => (close(), name === "delete" && go("/experiments")) });
  const resumable = !live && run.status !== "complete";
  if (!run.isOwner)
    return (
      <Copy text={() => window.location.href} label="Copy the link to this view">
        Copy link
      </Copy>
    );
  return (
    <>
      {action.isError && <ErrorNote error={action.error} />}
      {action.data && !action.data.success && <span className="small warn">{action.data.message}</span>}
      <Copy text={() => window.location.href} label="Copy the link to this view">
        Copy link
      </Copy>
      {live && (
        <Button icon={<Icon name="stop" />} onClick={() => setAsking("cancel")}>
          Stop
        </Button>
      )}
      {resumable && (
        <Button icon={<Icon name="play" />} busy={action.isPending} onClick={() => act("resume")}>
          Resume
        </Button>
      )}
      <Menu
        label="More"
        items={[
          ...(run.type === "simple" && !run.parentRunId
            ? [{ label: "Launch another like it…", icon: "plus" as const, onSelect: () => go(likeHref(run)) }]
            : []),
          { label: "Name, tags, notes…", onSelect: () => setAsking("edit") },
          {
            label: run.pinned ? "Unpin" : "Pin as the baseline",
            icon: "pin",
            onSelect: () => change.mutate({ id, pinned: !run.pinned }),
          },
          {
            label: run.isPublic ? "Make private" : "Make public…",
            icon: "link",
            onSelect: () => (run.isPublic ? change.mutate({ id, isPublic: false }) : setAsking("publish")),
          },
          {
            label: run.archived ? "Unarchive" : "Archive",
            icon: "archive",
            onSelect: () => change.mutate({ id, archived: !run.archived }),
          },
          { label: "Save its pages…", icon: "download", onSelect: () => setAsking("save") },
          null,
          { label: "Delete…", icon: "trash", danger: true, onSelect: () => setAsking("delete") },
        ]}
      />
      <Confirm
        open={asking === "cancel"}
        onClose={close}
        title="Stop this run?"
        action="Stop it"
        busy={action.isPending}
        onConfirm={() => act("cancel")}
      >
        It saves a checkpoint first and can be resumed later.
      </Confirm>
      <Confirm
        open={asking === "delete"}
        onClose={close}
        title="Delete this run?"
        action="Delete"
        busy={action.isPending}
        onConfirm={() => act("delete")}
      >
        The curves, rollouts and checkpoints of{" "}
        <strong>
          <Plain text={run.name} />
        </strong>{" "}
        are deleted. This cannot be undone.
      </Confirm>
      <Dialog
        open={asking === "publish"}
        onClose={close}
        title="Make this run public?"
        actions={
          <>
            <Button onClick={close}>Keep it private</Button>
            <Button
              kind="primary"
              busy={change.isPending}
              onClick={() => change.mutate({ id, isPublic: true }, { onSuccess: close })}
            >
              Make it public
            </Button>
          </>
        }
      >
        Anyone with the link sees the curves, settings and rollouts of{" "}
        <strong>
          <Plain text={run.name} />
        </strong>{" "}
        without signing in, including every prompt and every answer. Notes and logs stay private.
      </Dialog>
      {asking === "edit" && <Edit run={run} onClose={close} />}
      <Dialog open={asking === "save"} onClose={close} title="Save its pages">
        <div className="stack">
          <p>This writes what you see here into a folder that opens in any browser, without a server:</p>
          <Command text={`benchmax runs export ${id} ${id} --static`} />
        </div>
      </Dialog>
    </>
  );
}

function likeHref(run: Run): string {
  return `/experiments/new?${new URLSearchParams({ like: run.id, name: run.name })}`;
}

function Edit({ run, onClose }: { run: Run; onClose: () => void }) {
  const change = useChangeRun();
  const [name, setName] = useState(run.name);
  const [tags, setTags] = useState(run.tags.join(", "));
  const [notes, setNotes] = useState(run.notes ?? "");
  const list = [
    ...new Set(
      tags
        .split(",")
        .map((tag) => tag.trim())
        .filter(Boolean),
    ),
  ];
  const save = () => change.mutate({ id: run.id, name: name.trim(), tags: list, notes }, { onSuccess: onClose });
  return (
    <Dialog
      open
      onClose={onClose}
      title="Name, tags, notes"
      actions={
        <Button kind="primary" busy={change.isPending} disabled={!name.trim()} onClick={save}>
          Save
        </Button>
      }
    >
      <div className="stack">
        {change.isError && <ErrorNote error={change.error} />}
        <Field label="Name">
          {(id) => <Input id={id} value={name} maxLength={300} onChange={(event) => setName(event.target.value)} />}
        </Field>
        <Field label="Tags" hint="Separated by commas.">
          {(id) => <Input id={id} value={tags} onChange={(event) => setTags(event.target.value)} />}
        </Field>
        <Field label="Notes" hint="Only you see them.">
          {(id) => (
            <TextArea
              id={id}
              value={notes}
              rows={4}
              maxLength={20_000}
              onChange={(event) => setNotes(event.target.value)}
            />
          )}
        </Field>
      </div>
    </Dialog>
  );
}
