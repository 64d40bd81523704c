// A conversation with one checkpoint, or with two that hear the same. Choices live in the address.
import { useState } from "react";
import { type Sampling, type SessionWish, type Side, useSide } from "../../api/playground";
import { useCheckpoints } from "../../api/queries";
import { cx, ErrorNote, Skeleton, useKeys, useSearch } from "../../ui";
import { Composer } from "./Composer";
import { useFollow } from "./follow";
import { Options, useExampleId } from "./Options";
import { Talk } from "./Talk";
import "./playground.css";

/** `rows`: whether the run has an environment and rows of its own to play. */
export function Room({ runId, live, rows }: { runId: string; live: boolean; rows: boolean }) {
  const checkpoints = useCheckpoints(runId);
  if (checkpoints.isError) return <ErrorNote error={checkpoints.error} onRetry={() => checkpoints.refetch()} />;
  if (!checkpoints.data) return <Skeleton lines={6} />;
  const names = checkpoints.data.checkpoints.map((each) => each.name);
  return <Opened runId={runId} live={live} rows={rows} names={names} />;
}

type OpenedProps = { runId: string; live: boolean; rows: boolean; names: string[] };

function Opened({ runId, live, rows, names }: OpenedProps) {
  const search = useSearch();
  const [round, setRound] = useState(0);
  const first = search.get("checkpoint") || (names.length ? "best" : "base");
  const second = search.get("with");
  const example = useExampleId(runId, rows);
  const wish = (checkpoint: string): SessionWish | null =>
    example === undefined ? null : { runId, checkpoint, environment: search.get("plain") !== "1", exampleId: example };
  const left = useSide(wish(first), round);
  const right = useSide(second ? wish(second) : null, round);
  const sides = second ? [left, right] : [left];
  const stop = () => {
    for (const side of sides) side.stop();
  };
  useKeys({ Escape: stop });
  const { end, follow } = useFollow(left.turns, right.turns);
  const say = (content: string) => {
    const sampling = samplingOf(search.values);
    for (const side of sides) void side.say(content, sampling);
  };
  return (
    <div className="room">
      <div className="room-main">
        <div className={cx("room-sides", second && "room-two")}>
          {sides.map((side, index) => (
            <Talk key={index} side={side} runId={runId} alone={sides.length === 1} />
          ))}
        </div>
        <Composer
          sides={sides}
          hasExample={Boolean(example)}
          onSay={say}
          onStop={stop}
          onAnew={() => setRound(round + 1)}
          onGrow={follow}
        />
        <div ref={end} className="room-end" />
      </div>
      <Options runId={runId} live={live} names={names} first={first} example={example ?? null} about={about(sides)} />
    </div>
  );
}

/** What the model is told, from whichever side is ready. */
function about(sides: Side[]) {
  return sides.map((side) => side.info).find((info) => info?.status === "ready");
}

function samplingOf(values: Readonly<Record<string, string>>): Sampling {
  const number = (name: string) => {
    const value = Number(values[name]);
    return values[name] && Number.isFinite(value) ? value : undefined;
  };
  return { temperature: number("temperature"), maxTokens: number("tokens"), seed: number("seed") };
}
