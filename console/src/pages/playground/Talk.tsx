// One side of the playground: whether the checkpoint is ready, and what was said.
import { useState } from "react";
import type { Side, Turn } from "../../api/playground";
import { Button, Empty, ErrorNote, Note, Pill, Spinner } from "../../ui";
import { Said, TurnView } from "./Messages";
import { checkpointWords } from "./Options";
import { SaveRow } from "./SaveRow";

export function Talk({ side, runId, alone }: { side: Side; runId: string; alone: boolean }) {
  const [saving, setSaving] = useState<Turn | null>(null);
  const whole = side.info?.promptMessages ?? [];
  // Something else was asked in place of the example's question.
  const prompt = side.example && side.turns[0]?.said ? whole.slice(0, -1) : whole;
  // A reward is for the answer to the task; what is said after it is chat. A turn that was cut off was no answer.
  const answer = side.turns.find((turn) => turn.state === "done");
  const context = prompt.map((each) => ({ role: String(each.role), content: each.content }));
  return (
    <section className="talk" aria-label={`Conversation with ${checkpointWords(side.checkpoint)}`}>
      <header className="talk-head">
        <strong>{checkpointWords(side.checkpoint)}</strong>
        <Status side={side} />
      </header>
      {side.error !== null && <ErrorNote error={side.error} />}
      <div className="talk-body" aria-live="polite" aria-busy={side.going}>
        {prompt.map((message, index) => (
          <Said key={index} message={message as { role: string; content?: unknown }} />
        ))}
        {side.turns.map((turn) => (
          <TurnView
            key={turn.id}
            turn={turn}
            scored={turn === answer}
            actions={
              turn.state === "done" && (
                <Button kind="quiet" size="small" onClick={() => setSaving(turn)}>
                  Save as a row
                </Button>
              )
            }
          />
        ))}
        {!prompt.length && !side.turns.length && side.error === null && (
          <Empty title={alone ? "Send a message" : "No messages yet"} icon="chat">
            {alone && "It answers as in training: with the environment's system prompt and its tools."}
          </Empty>
        )}
      </div>
      {saving && <SaveRow turn={saving} context={context} runId={runId} onClose={() => setSaving(null)} />}
    </section>
  );
}

function Status({ side }: { side: Side }) {
  const info = side.info;
  if (side.error !== null) return <Pill tone="bad">unavailable</Pill>;
  if (!info || info.status === "starting") {
    return (
      <span className="muted small">
        <Spinner label={info?.statusReason || "loading the model …"} />
      </span>
    );
  }
  if (info.status === "ended") {
    return <Note tone="warn">Ended: {info.statusReason || "open a new conversation."}</Note>;
  }
  return side.going ? (
    <Pill tone="live">answering</Pill>
  ) : (
    <Pill tone="good" dot>
      ready
    </Pill>
  );
}
