// Example by example, the largest loss first; a row opens both transcripts beside each other.
import { useMemo, useState } from "react";
import type { ComparedGroup } from "../../../api/evals";
import { type Column, Dialog, format, Num, Plain, SearchBox, Table } from "../../../ui";
import { SideBySide } from "../../rollouts/SideBySide";

type Pair = { ours?: ComparedGroup; other: ComparedGroup };

const gain = ({ ours, other }: Pair) =>
  ours?.meanReward == null || other.meanReward === null ? null : ours.meanReward - other.meanReward;

const COLUMNS: Column<Pair>[] = [
  {
    id: "prompt",
    head: "Example",
    width: "minmax(200px, 3fr)",
    cell: (pair) => <Plain text={pair.other.promptText.slice(0, 200) || pair.other.promptMessageId} className="clip" />,
  },
  {
    id: "ours",
    head: "This run",
    align: "right",
    width: "90px",
    sort: (pair) => pair.ours?.meanReward ?? null,
    cell: (pair) => <Num value={pair.ours?.meanReward} as="reward" />,
  },
  {
    id: "other",
    head: "Other",
    align: "right",
    width: "90px",
    sort: (pair) => pair.other.meanReward,
    cell: (pair) => <Num value={pair.other.meanReward} as="reward" />,
  },
  {
    id: "gain",
    head: "Difference",
    align: "right",
    width: "110px",
    sort: gain,
    cell: (pair) => <Gain value={gain(pair)} />,
  },
];

function Gain({ value }: { value: number | null }) {
  return (
    <span className={value === null || value === 0 ? "muted num" : value > 0 ? "good num strong" : "bad num strong"}>
      {format.gain(value)}
    </span>
  );
}

export function Examples({
  run,
  pairs,
  total,
  other,
  otherRun,
  open,
  onOpen,
}: {
  run: string;
  /** The run whose rollouts the other side's are; this one's when not given. */
  otherRun?: string;
  pairs: Pair[];
  total: number;
  other: string;
  open: string;
  onOpen: (id: string) => void;
}) {
  const [sort, setSort] = useState<{ id: string; down: boolean } | null>({ id: "gain", down: false });
  const [text, setText] = useState("");
  const shown = useMemo(
    () => pairs.filter((pair) => pair.other.promptText.toLowerCase().includes(text.toLowerCase())),
    [pairs, text],
  );
  const lost = pairs.filter((pair) => (gain(pair) ?? 0) < 0).length;
  const won = pairs.filter((pair) => (gain(pair) ?? 0) > 0).length;
  const chosen = pairs.find((pair) => pair.other.promptMessageId === open);
  return (
    <>
      <div className="spread cm-examples-head">
        <span className="small">
          <b className="good num">{won}</b> better, <b className="bad num">{lost}</b> worse,{" "}
          <b className="num">{pairs.length - won - lost}</b> the same or unscored
          {total > pairs.length && (
            <span className="muted">
              ; the first {format.compact(pairs.length)} of {format.compact(total)}
            </span>
          )}
        </span>
        <SearchBox
          label="Search the prompts"
          placeholder="Search the prompts"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </div>
      <Table
        rows={shown}
        columns={COLUMNS}
        rowKey={(pair) => pair.other.promptMessageId}
        label="Examples"
        sort={sort}
        onSort={setSort}
        current={open || null}
        onOpen={(pair) => onOpen(pair.other.promptMessageId)}
        minWidth={560}
        maxHeight="56vh"
      />
      <Dialog
        open={chosen !== undefined}
        onClose={() => onOpen("")}
        title={chosen?.other.promptText.slice(0, 90) || "Both transcripts"}
        wide
      >
        {chosen && <Both run={run} otherRun={otherRun} pair={chosen} other={other} />}
      </Dialog>
    </>
  );
}

function Both({ run, otherRun, pair, other }: { run: string; otherRun?: string; pair: Pair; other: string }) {
  const [at, setAt] = useState(0);
  const ours = pair.ours?.rollouts ?? [];
  const theirs = pair.other.rollouts;
  const [left, right] = [ours[at % Math.max(1, ours.length)], theirs[at % Math.max(1, theirs.length)]];
  const samples = Math.max(ours.length, theirs.length);
  if (!left || !right) return <p className="muted">This run did not play this example in its latest evaluation.</p>;
  return (
    <div className="stack">
      {samples > 1 && (
        <div className="segments cm-samples" role="group" aria-label="Sample">
          {Array.from({ length: samples }, (_, index) => (
            <button key={index} type="button" aria-pressed={index === at} onClick={() => setAt(index)}>
              #{index}
            </button>
          ))}
        </div>
      )}
      <SideBySide
        run={run}
        left={{ id: left.id, label: "This run" }}
        right={{ id: right.id, run: otherRun, label: <Plain text={other.slice(0, 80)} /> }}
      />
    </div>
  );
}
