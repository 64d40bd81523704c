// Two rollouts beside each other, turn by turn, with what differs marked.
import { useQuery } from "@tanstack/react-query";
import { memo, type ReactNode, useEffect, useMemo, useState } from "react";
import { type Details, detailsQuery } from "../../api/rollouts";
import { Button, Check, cx, ErrorNote, format, Icon, marked, Pill, Plain, Skeleton, useStored } from "../../ui";
import { Task } from "./Aside";
import { blocksOf, type Message, pretty, textOf } from "./blocks";
import { diff, type Part } from "./diff";
import { Rewards } from "./Rewards";
import { ended } from "./words";

const TURNS = 60;
const CHARACTERS = 20_000;
const NONE_OPEN: ReadonlySet<string> = new Set();

/** `run` is the other run it belongs to, if it does. */
type Side = { id: string; label: ReactNode; run?: string };

export function SideBySide({
  run,
  left,
  right,
  onClose,
}: {
  run: string;
  left: Side;
  right: Side;
  onClose?: () => void;
}) {
  const one = useQuery(detailsQuery(run, left.id));
  const other = useQuery(detailsQuery(right.run ?? run, right.id));
  const [marks, setMarks] = useStored("rollouts.diff", true);
  const error = one.error ?? other.error;
  if (error) return <ErrorNote error={error} />;
  if (!one.data || !other.data) return <Skeleton lines={8} />;
  return (
    <div className="ro-sides">
      <div className="ro-sides-head">
        <Head details={one.data} label={left.label} than={other.data} />
        <Head details={other.data} label={right.label} than={one.data} />
      </div>
      {one.data.promptMessageId === other.data.promptMessageId && <Task task={one.data.task} only />}
      <div className="spread">
        <Check label="Highlight differences" checked={marks} onChange={(event) => setMarks(event.target.checked)} />
        {onClose && (
          <Button size="small" kind="quiet" icon={<Icon name="close" />} onClick={onClose}>
            Show only one
          </Button>
        )}
      </div>
      <Turns left={one.data} right={other.data} marks={marks} />
    </div>
  );
}

function Head({ details, label, than }: { details: Details; label: ReactNode; than: Details }) {
  const end = ended(details.termination);
  const better = (details.totalReward ?? Number.NEGATIVE_INFINITY) > (than.totalReward ?? Number.POSITIVE_INFINITY);
  return (
    <div className="stack-tight">
      <div className="row">
        <strong>{label}</strong>
        <Pill tone={end.tone} title={end.hint}>
          <Plain text={end.label} />
        </Pill>
        {better && <Pill tone="good">higher reward</Pill>}
      </div>
      <Rewards details={details} brief />
    </div>
  );
}

/** `given` turns were in the prompt: nobody wrote them here. */
type Turn = { role: string; text: string; given: boolean };

function Turns({ left, right, marks }: { left: Details; right: Details; marks: boolean }) {
  const [shown, setShown] = useState(TURNS);
  const pairs = useMemo(() => {
    const [a, b] = [turnsOf(left), turnsOf(right)];
    return Array.from({ length: Math.max(a.length, b.length) }, (_, index) => [a[index], b[index]] as const);
  }, [left, right]);
  return (
    <>
      {pairs.slice(0, shown).map(([a, b], index) => (
        <Pair key={index} left={a} right={b} marks={marks} />
      ))}
      {pairs.length > shown && (
        <Button onClick={() => setShown(shown + TURNS)}>Show more turns ({pairs.length - shown} left)</Button>
      )}
    </>
  );
}

const Pair = memo(function Pair({ left, right, marks }: { left?: Turn; right?: Turn; marks: boolean }) {
  const same = left?.text === right?.text && left?.role === right?.role;
  const parts = useParts(left?.text ?? "", right?.text ?? "", marks && !same && Boolean(left && right));
  if (same && left && (left.given || left.role !== "assistant")) {
    return (
      <div className="ro-pair ro-pair-same">
        <Cell turn={left} />
      </div>
    );
  }
  return (
    <div className="ro-pair">
      <Cell turn={left} parts={parts} side="left" />
      <Cell turn={right} parts={parts} side="right" />
    </div>
  );
});

function Cell({ turn, parts, side }: { turn?: Turn; parts?: Part[] | null; side?: "left" | "right" }) {
  if (!turn) return <div className="ro-cell ro-cell-none muted">No turn</div>;
  const cut = turn.text.length > CHARACTERS;
  return (
    <div className={cx("ro-cell", turn.role === "assistant" && !turn.given && "ro-cell-own")}>
      <div className="ro-role small">
        <Plain text={turn.role.slice(0, 60)} />
        {turn.given && turn.role === "assistant" && <span className="muted"> part of the prompt</span>}
      </div>
      <pre className="ro-text" data-transcript="">
        {parts && side
          ? parts
              .filter((part) => part.kind === "same" || part.kind === side)
              .map((part, index) =>
                part.kind === "same" ? (
                  <span key={index}>{marked(part.text)}</span>
                ) : (
                  <mark key={index} className="ro-differs">
                    {marked(part.text)}
                  </mark>
                ),
              )
          : marked(turn.text.slice(0, CHARACTERS))}
      </pre>
      {cut && (
        <p className="muted small">
          The first {format.bytes(CHARACTERS)} of {format.bytes(turn.text.length)} are compared.
        </p>
      )}
    </div>
  );
}

/** The differing parts, computed beside the page's work; null until they are there. */
function useParts(left: string, right: string, wanted: boolean): Part[] | null {
  const [parts, setParts] = useState<Part[] | null>(null);
  useEffect(() => {
    setParts(null);
    if (!wanted) return;
    let gone = false;
    diff(left.slice(0, CHARACTERS), right.slice(0, CHARACTERS), () => gone).then((found) => !gone && setParts(found));
    return () => {
      gone = true;
    };
  }, [left, right, wanted]);
  return parts;
}

/** Turns as text: a tool call is part of what the model wrote. */
function turnsOf(details: Details): Turn[] {
  const messages = [...details.promptMessages, ...details.messages] as Message[];
  const calls = new Map<number, string>();
  for (const block of blocksOf(details, NONE_OPEN)) {
    if (block.kind === "call") {
      const turn = Number(block.key.split(":")[0]);
      calls.set(turn, `${calls.get(turn) ?? ""}\n→ ${block.name}(${block.brief})`);
    }
  }
  return messages.map((message, index) => ({
    role: String(message.role ?? "unknown"),
    text: (pretty(textOf(message.content)) + (calls.get(index) ?? "")).trim(),
    given: index < details.promptMessages.length,
  }));
}
