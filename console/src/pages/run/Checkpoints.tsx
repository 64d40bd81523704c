// Saved weights: which step, how good it was then, and what can be done with them.
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, problem, request, type Schemas } from "../../api/client";
import { fault, parsed, rememberWarnings, useLaunchArgs } from "../../api/launch";
import { useCheckpoints } from "../../api/queries";
import { useScalars } from "../../api/scalars";
import { nearest, type Series } from "../../chart/series";
import {
  Button,
  Card,
  type Column,
  Dialog,
  Empty,
  ErrorNote,
  Field,
  format,
  Icon,
  Input,
  Link,
  Menu,
  Note,
  Num,
  Pill,
  Skeleton,
  Spinner,
  Table,
  Time,
  useGo,
} from "../../ui";
import { useRun } from "./context";
import { heldOut } from "./verdict";

type Checkpoint = Schemas["Checkpoint"];

/** What one may want to change when a run goes on as another. */
const CHANGED = ["num_epochs", "learning_rate", "group_size"];

export default function Checkpoints() {
  const { id, tabHref } = useRun();
  const found = useCheckpoints(id);
  const train = useScalars(id, "train");
  const evaluated = useScalars(id, "eval");
  const warm = useScalars(id, "warm_start");
  const [fork, setFork] = useState<Checkpoint | null>(null);
  const download = useDownload(id);
  if (found.isError) return <ErrorNote error={found.error} onRetry={() => found.refetch()} />;
  // A dash says that nothing was measured: not before it is known.
  if (found.isPending || train.isPending || evaluated.isPending || warm.isPending) return <Skeleton />;
  const held = heldOut(evaluated.data, warm.data);
  const heldAt = (step: number | null) => held.findLast((each) => each.step === step)?.value ?? null;
  const rows = [...found.data.checkpoints].reverse();
  if (rows.length === 0) {
    return (
      <Empty icon="archive" title="No checkpoints yet">
        The trainer saves the weights every few steps (checkpoint.every) and at the end.
      </Empty>
    );
  }
  const columns: Column<Checkpoint>[] = [
    {
      id: "step",
      head: "Step",
      width: "minmax(140px, 1fr)",
      sort: (row) => row.step,
      cell: (row) => <Name row={row} />,
    },
    {
      id: "train",
      head: "Train reward",
      width: "110px",
      align: "right",
      sort: (row) => value(train.data?.get("reward/mean"), row.step),
      cell: (row) => <Num value={value(train.data?.get("reward/mean"), row.step)} as="reward" />,
    },
    {
      id: "eval",
      head: "Eval reward",
      width: "110px",
      align: "right",
      sort: (row) => heldAt(row.step),
      cell: (row) => <Num value={heldAt(row.step)} as="reward" />,
    },
    {
      id: "bytes",
      head: "Size",
      width: "90px",
      align: "right",
      sort: (row) => row.bytes,
      cell: (row) => <Num value={row.bytes} as="bytes" />,
    },
    {
      id: "time",
      head: "Saved",
      width: "110px",
      align: "right",
      sort: (row) => row.createdAt,
      cell: (row) => <Time at={row.createdAt} />,
    },
    {
      id: "do",
      head: "",
      width: "minmax(120px, 200px)",
      align: "right",
      cell: (row) => (
        <Do row={row} onFork={() => setFork(row)} onDownload={(kind) => download.mutate({ name: row.name, kind })} />
      ),
    },
  ];
  return (
    <div className="stack">
      <Card flush>
        <Table
          label="Checkpoints"
          rows={rows}
          columns={columns}
          rowKey={(row) => row.name}
          rowHeight={46}
          minWidth={700}
        />
      </Card>
      {download.isPending && (
        <Note>
          <Spinner /> Preparing {download.variables.name}. Your browser saves the file when it is ready.
        </Note>
      )}
      {download.isError && <ErrorNote error={download.error} />}
      <p className="muted small">
        The best checkpoint is the one with the highest reward on held-out rows; the last one may be worse.{" "}
        <Link href={tabHref("eval")}>See the eval curve</Link>
      </p>
      {fork && <Fork row={fork} onClose={() => setFork(null)} />}
    </div>
  );
}

/** Asks until the runner has made the file, then lets the browser save it. */
function useDownload(id: string) {
  return useMutation({
    mutationFn: async ({ name, kind }: { name: string; kind: string }) => {
      const path = `/v1/train/runs/${encodeURIComponent(id)}/checkpoints/${encodeURIComponent(name)}/download?format=${kind}`;
      for (;;) {
        const answer = await fetch(`${path}&wait=20`);
        if (answer.status === 200) {
          await answer.body?.cancel();
          window.location.assign(path);
          return;
        }
        const body = await answer.json().catch(() => null);
        if (answer.status !== 202) throw new ApiError(answer.status, problem(body, answer.status));
      }
    },
  });
}

function value(series: Series | undefined, step: number | null): number | null {
  if (!series || step === null) return null;
  const index = nearest(series.x, step);
  // What was measured of other weights is not said of these.
  return index >= 0 && series.x[index] === step ? series.y[index]! : null;
}

function Name({ row }: { row: Checkpoint }) {
  return (
    <span className="row-tight">
      <b className="strong num">{row.step === null ? row.name : row.step.toLocaleString("en-US")}</b>
      {row.best && <Pill tone="good">best</Pill>}
      {row.latest && <Pill tone="info">latest</Pill>}
    </span>
  );
}

function Do({ row, onFork, onDownload }: { row: Checkpoint; onFork: () => void; onDownload: (kind: string) => void }) {
  const { run, tabHref } = useRun();
  const go = useGo();
  return (
    <span className="row-tight right">
      <span className="grow" />
      <Button
        size="small"
        kind="quiet"
        icon={<Icon name="chat" />}
        onClick={() => go(tabHref("playground", { checkpoint: row.name }))}
      >
        Try it
      </Button>
      {run.isOwner && (
        <Menu
          label={`More for ${row.name}`}
          size="small"
          kind="quiet"
          items={[
            { label: "Start a new run from here…", icon: "fork", onSelect: onFork },
            { label: "Download the adapter", icon: "download", onSelect: () => onDownload("adapter") },
            { label: "Download the merged model", icon: "download", onSelect: () => onDownload("merged") },
          ]}
        />
      )}
    </span>
  );
}

function Fork({ row, onClose }: { row: Checkpoint; onClose: () => void }) {
  const { id, run } = useRun();
  const go = useGo();
  const [name, setName] = useState(`${run.name}, from step ${row.step ?? row.name}`);
  const args = (useLaunchArgs().data ?? []).filter((arg) => CHANGED.includes(arg.name));
  const [typed, setTyped] = useState<Record<string, string>>({});
  const given = args.filter((arg) => typed[arg.name]);
  const wrong = given.some((arg) => fault(arg, typed[arg.name]!) !== null);
  const fork = useMutation({
    mutationFn: () =>
      request<Schemas["Launched"]>("POST", `/v1/train/runs/${encodeURIComponent(id)}/fork`, {
        checkpoint: row.name,
        name: name.trim(),
        args: Object.fromEntries(given.map((arg) => [arg.name, parsed(arg, typed[arg.name]!)])),
      }),
    onSuccess: (made) => {
      rememberWarnings(made);
      go(`/experiments/${made.runId}`);
    },
  });
  return (
    <Dialog
      open
      onClose={onClose}
      title={row.step === null ? `A new run from ${row.name}` : `A new run from step ${format.number(row.step)}`}
      actions={
        <Button kind="primary" busy={fork.isPending} disabled={!name.trim() || wrong} onClick={() => fork.mutate()}>
          Start it
        </Button>
      }
    >
      <div className="stack">
        {fork.isError && <ErrorNote error={fork.error} />}
        <p className="muted">
          It starts from these weights with the same data; settings stay the same unless you change them.
        </p>
        <Field label="Name">
          {(field) => (
            <Input id={field} value={name} maxLength={300} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
        {args.map((arg) => (
          <Field
            key={arg.name}
            label={arg.label}
            error={(typed[arg.name] && fault(arg, typed[arg.name]!)) || undefined}
          >
            {(field) => (
              <Input
                id={field}
                inputMode="decimal"
                value={typed[arg.name] ?? ""}
                placeholder={String(run.launcherArgs?.[arg.name] ?? "unchanged")}
                onChange={(event) => setTyped({ ...typed, [arg.name]: event.target.value })}
              />
            )}
          </Field>
        ))}
      </div>
    </Dialog>
  );
}
