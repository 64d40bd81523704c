// One rollout: the conversation, its tokens, what the environment logged, the record itself.
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { api, unwrap } from "../../api/client";
import { type Details, detailsQuery, type Scope, useExample } from "../../api/rollouts";
import { shownStep, stepName } from "../../api/steps";
import {
  Button,
  Copy,
  ErrorNote,
  format,
  Icon,
  KeyHint,
  marked,
  Note,
  Pill,
  Plain,
  Select,
  Skeleton,
  Tabs,
  Time,
} from "../../ui";
import { Aside } from "./Aside";
import { piecesOf } from "./blocks";
import type { Range } from "./colour";
import type { View } from "./filters";
import { SideBySide } from "./SideBySide";
import { Tokens } from "./Tokens";
import { Transcript } from "./Transcript";
import { ended } from "./words";

type Props = { run: string; view: View; range: Range; scope: Scope; onMove: (by: 1 | -1) => void };

export function Detail({ run, view, range, scope, onMove }: Props) {
  const found = useQuery({ ...detailsQuery(run, view.open), enabled: view.open !== "" });
  const { set } = view.search;
  const close = () => set({ rollout: null, with: null });
  if (!view.open) return <Hint />;
  const details = found.data;
  return (
    <section className="ro-main" aria-label="The open rollout">
      <header className="ro-head">
        <Button
          className="ro-back"
          kind="quiet"
          size="small"
          icon={<Icon name="close" />}
          aria-label="Back to the list"
          onClick={close}
        />
        {details ? <Title details={details} /> : <span className="grow" />}
        <div className="row-tight">
          {details && <BesidePicker run={run} view={view} details={details} scope={scope} />}
          <Copy text={() => window.location.href} label="Copy a link to this rollout">
            Link
          </Copy>
          <Button
            kind="quiet"
            size="small"
            aria-label="Previous sample (k)"
            title="Previous sample (k)"
            onClick={() => onMove(-1)}
          >
            ↑
          </Button>
          <Button
            kind="quiet"
            size="small"
            aria-label="Next sample (j)"
            title="Next sample (j)"
            onClick={() => onMove(1)}
          >
            ↓
          </Button>
        </div>
      </header>
      {found.error ? (
        <ErrorNote error={found.error} onRetry={() => found.refetch()} />
      ) : !details ? (
        <Skeleton lines={8} />
      ) : view.beside ? (
        <div className="ro-scroll ro-pad">
          <SideBySide
            run={run}
            left={{ id: view.open, label: <Which details={details} /> }}
            right={{ id: view.beside, label: <WhichId run={run} id={view.beside} /> }}
            onClose={() => set({ with: null })}
          />
        </div>
      ) : (
        <Parts key={details.id} run={run} view={view} details={details} range={range} scope={scope} />
      )}
    </section>
  );
}

function Hint() {
  return (
    <section className="ro-main ro-hint" aria-label="The open rollout">
      <div className="stack muted">
        <p>Choose a rollout to read its whole conversation.</p>
        <p>
          <KeyHint>j</KeyHint> <KeyHint>k</KeyHint> next and previous sample
        </p>
        <p>
          <KeyHint>J</KeyHint> <KeyHint>K</KeyHint> next and previous group
        </p>
        <p>
          <KeyHint>Shift</KeyHint> and a click open a second one beside it
        </p>
      </div>
    </section>
  );
}

function Title({ details }: { details: Details }) {
  const end = ended(details.termination);
  return (
    <div className="row grow">
      <h2>
        <Which details={details} />
      </h2>
      <Pill tone={end.tone} title={end.hint}>
        <Plain text={end.label.slice(0, 60)} />
      </Pill>
      {details.discarded && (
        <Pill tone="warn" title="The trainer did not learn from it">
          Left out: <Plain text={details.discarded.slice(0, 60)} />
        </Pill>
      )}
    </div>
  );
}

function Which({ details }: { details: Details }) {
  return (
    <span className="num">
      {stepName(details.mode, details.step)}, sample #{details.sample}
    </span>
  );
}

function WhichId({ run, id }: { run: string; id: string }) {
  const found = useQuery(detailsQuery(run, id));
  return found.data ? <Which details={found.data} /> : null;
}

/** Another rollout of the same example, to stand beside this one. */
function BesidePicker({ run, view, details, scope }: { run: string; view: View; details: Details; scope: Scope }) {
  const cells = useExample(run, scope, details.promptMessageId).data ?? [];
  const others = cells
    .filter((cell) => cell.id !== details.id)
    .slice(-100)
    .reverse();
  if (!others.length && !view.beside) return null;
  return (
    <Select
      className="ro-picker"
      aria-label="Show another beside it"
      value={view.beside}
      onChange={(event) => view.search.set({ with: event.target.value })}
    >
      <option value="">Beside…</option>
      {view.beside && !others.some((cell) => cell.id === view.beside) && (
        <option value={view.beside}>the chosen one</option>
      )}
      {others.map((cell) => (
        <option key={cell.id} value={cell.id}>
          step {shownStep(details.mode, cell.step)} #{cell.sample}: {format.reward(cell.totalReward)}
        </option>
      ))}
    </Select>
  );
}

const PARTS = ["conversation", "tokens", "logs", "raw"] as const;

function Parts({
  run,
  view,
  details,
  range,
  scope,
}: {
  run: string;
  view: View;
  details: Details;
  range: Range;
  scope: Scope;
}) {
  const [scroller, setScroller] = useState<HTMLDivElement | null>(null);
  const part = PARTS.find((each) => each === view.search.values.part) ?? "conversation";
  const { set } = view.search;

  const tabs = [
    { id: "conversation", label: "Conversation" },
    { id: "tokens", label: "Tokens" },
    { id: "logs", label: "Logs", count: details.logs.length || undefined },
    { id: "raw", label: "Raw" },
  ];
  return (
    <>
      <Tabs
        label="Parts of the rollout"
        tabs={tabs}
        current={part}
        onChange={(id) => set({ part: id === "conversation" ? null : id })}
      />
      <div className="ro-columns">
        {/* Another part begins at its top. */}
        <div key={part} className="ro-scroll ro-content" ref={setScroller} tabIndex={0} role="region" aria-label={part}>
          <Problems details={details} />
          {scroller && part === "conversation" && <Transcript details={details} scroller={scroller} />}
          {scroller && part === "tokens" && <Tokens details={details} scroller={scroller} />}
          {part === "logs" && <Logs run={run} details={details} />}
          {part === "raw" && <Raw details={details} />}
        </div>
        <Aside run={run} details={details} scope={scope} range={range} onOpen={(id) => set({ rollout: id })} />
      </div>
    </>
  );
}

function Problems({ details }: { details: Details }) {
  const error = details.error as { type?: string; message?: string; where?: string } | null;
  return (
    <>
      {!details.complete && (
        <Note tone="warn">The record of this rollout is no longer on disk; only what the index has is shown.</Note>
      )}
      {error && (
        <Note tone="bad">
          <strong>
            <Plain text={`${error.type ?? "Error"}${error.where ? ` in ${error.where}` : ""}`.slice(0, 300)} />
          </strong>
          <pre className="ro-error">{marked(String(error.message ?? "").slice(0, 8000))}</pre>
        </Note>
      )}
    </>
  );
}

function Logs({ run, details }: { run: string; details: Details }) {
  const stored = useQuery({
    queryKey: ["run", run, "logs", "rollout", details.id],
    queryFn: () =>
      unwrap(
        api.GET("/v1/train/runs/{run_id}/environment-logs", {
          params: { path: { run_id: run }, query: { rolloutId: details.id } },
        }),
      ),
  });
  if (stored.error) return <ErrorNote error={stored.error} onRetry={() => stored.refetch()} />;
  const lines = stored.data?.logs;
  if (!lines) return <Skeleton lines={4} />;
  if (!lines.length)
    return (
      <p className="muted">
        The environment logged nothing during this rollout. Its code can log with log_env(rollout_id, "…").
      </p>
    );
  return (
    <div className="ro-logs" data-transcript="">
      {lines.map((line) => (
        <div key={line.id} className={line.level === "ERROR" ? "bad" : undefined}>
          <span className="muted small">
            <Time at={line.createdAt} />
          </span>
          <span className="small strong">
            <Plain text={line.level} />
          </span>
          <pre>{marked((line.traceback ? `${line.message}\n${line.traceback}` : line.message).slice(0, 20_000))}</pre>
        </div>
      ))}
    </div>
  );
}

/** The record as JSON, made when it is looked at, a part at a time. */
function Raw({ details }: { details: Details }) {
  const text = useMemo(() => JSON.stringify(details, null, 2), [details]);
  const pieces = useMemo(() => piecesOf(text.slice(0, 400_000), 8_000), [text]);
  return (
    <div className="stack" data-transcript="">
      <div className="row">
        <Copy text={text} label="Copy the record">
          Copy all
        </Copy>
        <span className="muted small">{format.bytes(text.length)}</span>
      </div>
      <div className="ro-raw">
        {pieces.map((piece, index) => (
          <pre key={index}>{marked(piece)}</pre>
        ))}
      </div>
      {text.length > 400_000 && (
        <p className="muted small">The first {format.bytes(400_000)} are shown; “Copy all” copies everything.</p>
      )}
    </div>
  );
}
