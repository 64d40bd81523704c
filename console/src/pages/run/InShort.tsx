// A run in ten seconds: did it learn, may it cheat, which checkpoint to take, what differs from the run before.
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { useRunDoctor } from "../../api/doctor";
import { isGoing, useReport, useStartDoctor } from "../../api/environments";
import { useAlerts, useCheckpoints } from "../../api/queries";
import { useScalars } from "../../api/scalars";
import { Button, ErrorNote, format, Link, Pill, Skeleton, Spinner, type Tone } from "../../ui";
import { Shows } from "./Alerts";
import { Baseline } from "./Baseline";
import { useRun } from "./context";
import { byHeart, FEW, gained, heldOut, learned, type Mean, means, shortcuts, UNSURE } from "./verdict";

export function InShort() {
  const { id, run, live } = useRun();
  const trained = useScalars(id, "train");
  const evaluated = useScalars(id, "eval");
  const warm = useScalars(id, "warm_start");
  // Half of the numbers would tell another story.
  if (trained.isPending || evaluated.isPending || warm.isPending)
    return run.latestStep === null ? null : <Skeleton height={144} />;
  const train = means(trained.data);
  const held = heldOut(evaluated.data, warm.data);
  if (train.length === 0) return null;
  return (
    <dl className="short" aria-label="In short">
      <Learned train={train} held={held} live={live} />
      <Cheating train={train} held={held} />
      <Best held={held} />
      {run.isOwner && (
        <Answer question="What differs from the run before?">
          <Baseline />
        </Answer>
      )}
    </dl>
  );
}

function Answer({
  question,
  word,
  tone,
  children,
}: {
  question: string;
  word?: React.ReactNode;
  tone?: Tone;
  children?: React.ReactNode;
}) {
  return (
    <div>
      <dt>{question}</dt>
      <dd>
        {word && <Pill tone={tone}>{word}</Pill>}
        {children}
      </dd>
    </div>
  );
}

function Learned({ train, held, live }: { train: Mean[]; held: Mean[]; live: boolean }) {
  const found = learned(train, held);
  // Where all counted as solved from the beginning, that says nothing.
  const solved = found && held[0]?.solved !== 1 && found.solved;
  const warm = held.find((each) => each.warm);
  const question = live ? "Does it learn?" : "Did it learn?";
  if (!found || (live && !found.heldOut && train.length < FEW))
    return (
      <Answer question={question} word="Too early to tell">
        <span>This shows after a few steps and two evaluations.</span>
      </Answer>
    );
  if (found.word === UNSURE && held[0]?.step === 0 && held[0].solved === 1)
    return (
      <Answer question={question} word="Nothing to learn" tone="warn">
        <span>
          It solved every held-out row before training: the task is too easy for it, or the reward accepts any answer.
        </span>
      </Answer>
    );
  // Nothing more comes from a run that is over.
  const word = found.word === UNSURE && !live ? (found.chance ? "Not clearly" : "No") : found.word;
  return (
    <Answer question={question} word={word} tone={found.tone}>
      <span>
        {found.heldOut ? "Reward on held-out rows " : "Reward on training rows "}
        <b>
          {format.reward(found.from)} → {format.reward(found.to)}
        </b>
        {found.heldOut && warm && <> ({format.reward(warm.value)} after the warm start)</>}
        {found.fell !== null && <>, now {format.reward(found.fell)}</>}
        {found.chance && <>, which may be chance</>}
        {found.heldOut ? (
          typeof solved === "number" && <>; {format.percent(solved, 0)} of them solved</>
        ) : (
          <>; held-out rows have not been evaluated twice yet</>
        )}
        .
      </span>
    </Answer>
  );
}

/** What hints at a reward that is earned in another way than meant. None is no proof, and is not called one. */
function Cheating({ train, held }: { train: Mean[]; held: Mean[] }) {
  const { id } = useRun();
  const rung = shortcuts(useAlerts(id).data?.events ?? []);
  const gap = byHeart(train, held);
  const doctor = useDoctor();
  const signs = rung.length + (gap ? 1 : 0);
  // What the doctor calls an error is not always a way to cheat, and never harmless.
  const sick = severe(doctor.report) > 0;
  const clear = Boolean(doctor.report); // without an examination nobody has looked for what it could do
  return (
    <Answer
      question="Is it cheating?"
      word={
        signs ? `${format.plural(signs, "sign")} of it` : sick ? "It could" : clear ? "No sign of it" : "No sign so far"
      }
      tone={signs || sick ? "warn" : clear ? "good" : "neutral"}
    >
      {rung.map((event) => (
        <span key={event.id}>
          {event.message.split(". ")[0]}. <Shows event={event}>Read one</Shows>
        </span>
      ))}
      {gap && (
        <span>
          Training rows earn {format.reward(gap.train)}, held-out rows {format.reward(gap.held)}: it may have memorised
          them.
        </span>
      )}
      {!rung.length && !gap && (
        <span>
          {(held.at(-1)?.step ?? 0) > 0
            ? "No alerts, and held-out rows earn about as much as training rows."
            : "No alerts so far."}
        </span>
      )}
      <Examined {...doctor} />
    </Answer>
  );
}

type Report = Schemas["DoctorReport"];

function severe(report: Report | null | undefined): number {
  return (report?.findings ?? []).filter((each) => each.severity === "error").length;
}

/** The doctor's word on the environment of a run that has nothing else to show. */
export function DoctorsWord() {
  return <Examined {...useDoctor()} />;
}

/** What the doctor said of the run's environment, and having it look. */
function useDoctor() {
  const { id, run } = useRun();
  const [asked, setAsked] = useState<string | null>(null);
  const start = useStartDoctor();
  const known = useRunDoctor(id, run.isOwner && run.type !== "sft").data;
  const environment = known?.environment ?? null;
  const looked = useReport(environment, asked).data;
  const failed = looked?.status === "failed" ? new Error(looked.statusReason) : null;
  const examine = () =>
    environment &&
    start.mutate(
      { id: environment, datasetPath: known?.datasetPath },
      { onSuccess: (made) => setAsked(made.reportId) },
    );
  return {
    environment,
    report: looked?.status === "complete" ? looked : known?.report,
    going: start.isPending || (asked !== null && (!looked || isGoing(looked))),
    error: start.error ?? failed,
    examine,
  };
}

function Examined({ environment, report, going, error, examine }: ReturnType<typeof useDoctor>) {
  if (going) return <Spinner label="The doctor is examining the environment …" />;
  if (!environment) return null;
  const href = `/environments/${encodeURIComponent(environment)}?tab=doctor`;
  const errors = severe(report);
  const warnings = (report?.findings ?? []).filter((each) => each.severity === "warning").length;
  if (error) return <ErrorNote error={error} />;
  if (!report)
    return (
      <span>
        The doctor has not examined its environment on the platform.{" "}
        <Button size="small" onClick={examine}>
          Examine it
        </Button>
      </span>
    );
  const found = [errors && format.plural(errors, "error"), warnings && format.plural(warnings, "warning")];
  return (
    <span>
      The doctor found{" "}
      <Link href={`${href}&report=${encodeURIComponent(report.id)}`}>
        {found.filter(Boolean).join(" and ") || "nothing wrong"}
      </Link>{" "}
      in its environment.
    </span>
  );
}

function Best({ held }: { held: Mean[] }) {
  const { id, run, live, tabHref } = useRun();
  const checkpoints = useCheckpoints(id);
  const kept = checkpoints.data?.checkpoints;
  if (!kept) return null;
  const best = kept.find((each) => each.best) ?? kept.find((each) => each.latest);
  const measured = held.findLast((each) => each.step === best?.step);
  // The first evaluation, where it was made before all.
  const start = held[0]?.step === 0 && !held[0].warm ? held[0] : undefined;
  const better = !measured || !start || measured === start || gained(start, measured);
  if (!best)
    return (
      <Answer question="What is its best checkpoint?" word={live ? "None yet" : "None"}>
        <span>{live ? "The first is saved after a few steps." : "No weights were kept."}</span>
      </Answer>
    );
  return (
    <Answer question="What is its best checkpoint?" word={best.name} tone={best.best && better ? "good" : "neutral"}>
      <span>
        {measured ? (
          <>
            Held-out reward <b>{format.reward(measured.value)}</b>
            {!better ? ", no higher than before training. " : best.best ? ", the highest of those kept. " : ". "}
          </>
        ) : (
          <>The latest; none was evaluated. </>
        )}
        <Link href={tabHref("checkpoints")}>Download it or continue from it</Link>
        {run.isOwner && (
          <>
            {" · "}
            <Link href={tabHref("playground", { checkpoint: best.name })}>Chat with it</Link>
          </>
        )}
      </span>
    </Answer>
  );
}
