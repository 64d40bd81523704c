// This run against other models on the same held-out rows.
import { useState } from "react";
import { type EvalInfo, type Other, useCompared, useComparison, useEvals } from "../../api/evals";
import { isOver } from "../../api/queries";
import { Button, Card, Chip, Empty, ErrorNote, format, Icon, Note, Pill, Plain, Skeleton, useSearch } from "../../ui";
import { Bars } from "./compare/Bars";
import "./compare/compare.css";
import { Examples } from "./compare/Examples";
import { Start } from "./compare/Start";
import { modelName, state } from "./compare/words";
import "../rollouts/rollouts.css";
import { Chooser, useBaseline } from "./Baseline";
import { useRun } from "./context";

export default function Compare() {
  const { id, run } = useRun();
  const evals = useEvals(id);
  const search = useSearch();
  const [starting, setStarting] = useState(false);
  const { others } = useBaseline();
  if (evals.error) return <ErrorNote error={evals.error} onRetry={() => evals.refetch()} />;
  if (!evals.data) return <Skeleton lines={6} />;
  const all = [...evals.data].reverse();
  const other = others.find((each) => each.id === search.get("vs"));
  const current = other ? undefined : (all.find((each) => each.id === search.get("eval")) ?? all[0]);
  const choose = (chosen: { eval?: string; vs?: string }) => {
    setStarting(false);
    search.set({ eval: chosen.eval ?? null, vs: chosen.vs ?? null, example: null });
  };
  return (
    <div className="ro cm">
      {(all.length > 0 || others.length > 0) && (
        <div className="row" role="group" aria-label="Comparisons">
          {all.map((each) => (
            <Chip key={each.id} on={each.id === current?.id} onClick={() => choose({ eval: each.id })}>
              <Plain text={(each.name || modelName(each.model)).slice(0, 60)} className="clip" />
              {!isOver(each.status) && (
                <span className="muted num"> {each.total ? format.percent(each.done / each.total, 0) : "…"}</span>
              )}
              {each.status === "failed" && <span className="bad"> failed</span>}
            </Chip>
          ))}
          {others.length > 0 && (
            <Chooser
              label="Another run to compare with"
              prompt="Another run…"
              run={run}
              others={others}
              found={other}
              onChoose={(id) => choose({ vs: id })}
            />
          )}
          {run.isOwner && (all.length > 0 || other) && (
            <Button
              size="small"
              kind="quiet"
              icon={<Icon name="plus" />}
              aria-expanded={starting}
              onClick={() => setStarting(!starting)}
            >
              New comparison
            </Button>
          )}
        </div>
      )}
      {run.isOwner && (starting || !(current || other)) && (
        <Start run={id} first={!current} onStarted={(id) => choose({ eval: id })} />
      )}
      {other ? (
        <Both
          key={other.id}
          run={id}
          with={{ otherRunId: other.id }}
          version={`${other.latestStep}`}
          name={other.name}
          otherRun={other.id}
          over
        />
      ) : current ? (
        <One key={current.id} run={id} each={current} />
      ) : (
        <Empty title="No comparison yet">
          Start one to see whether training helped: the base model is a good first choice
          {others.length > 0 && ", or choose another run above"}.
        </Empty>
      )}
    </div>
  );
}

function One({ run, each }: { run: string; each: EvalInfo }) {
  return (
    <>
      <Progress each={each} />
      <Both
        run={run}
        with={{ externalEvalId: each.id }}
        version={`${each.status}-${Math.floor(each.done / 20)}`}
        name={each.name || modelName(each.model)}
        over={each.status === "complete"}
      />
    </>
  );
}

/** This run and another side of any kind: by component, then example by example. */
function Both({
  run,
  with: other,
  version,
  name,
  otherRun,
  over,
}: {
  run: string;
  with: Other;
  version: string;
  name: string;
  otherRun?: string;
  /** Whether nothing more will come. */
  over: boolean;
}) {
  const search = useSearch();
  const summary = useComparison(run, other, version);
  const compared = useCompared(run, other, version);
  const error = summary.error ?? compared.error;
  if (error) return <ErrorNote error={error} />;
  const components = summary.data?.components ?? [];
  return (
    <>
      {components.length > 0 && (
        <Card
          title={
            <>
              This run against <Plain text={name.slice(0, 80)} />
            </>
          }
        >
          <Bars components={components} other={name} n={summary.data?.n ?? 0} />
        </Card>
      )}
      {over && summary.data && !components.length && (
        <Note tone="warn">
          {otherRun
            ? "The two runs have no evaluated example in common, or nothing was scored. Choose a run on the same rows."
            : "The two have no example in common, or nothing was scored. Evaluate the run on held-out rows (eval.every) and start the comparison again."}
        </Note>
      )}
      {components.length > 0 && compared.data && compared.data.pairs.length > 0 && (
        <Card title="Example by example" flush>
          <Examples
            run={run}
            otherRun={otherRun}
            pairs={compared.data.pairs}
            total={compared.data.total}
            other={name}
            open={search.get("example")}
            onOpen={(example) => search.set({ example })}
          />
        </Card>
      )}
    </>
  );
}

function Progress({ each }: { each: EvalInfo }) {
  if (each.status === "complete") return null;
  if (isOver(each.status))
    return (
      <Note tone="bad">
        <Plain text={each.statusReason || "It ended without a result. The runner's log has details."} />
      </Note>
    );
  const part = each.total ? each.done / each.total : 0;
  return (
    <div className="cm-progress" role="status">
      <Pill tone="live">{state(each)}</Pill>
      <span
        className="ro-track grow"
        role="progressbar"
        aria-label="Progress"
        aria-valuenow={Math.round(part * 100)}
        aria-valuemin={0}
        aria-valuemax={100}
      >
        <i style={{ width: `${part * 100}%` }} />
      </span>
      <span className="num small muted">{each.total ? `${each.done} of ${each.total}` : "not started"}</span>
    </div>
  );
}
