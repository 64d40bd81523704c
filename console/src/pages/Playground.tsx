// Talk with the checkpoint of any run: choose the run, the rest is the same as on its Playground tab.
import { useParams } from "@tanstack/react-router";
import { isOver, useRuns } from "../api/queries";
import { Empty, ErrorNote, Link, Page, Select, Skeleton, useGo } from "../ui";
import { Room } from "./playground/Room";

export default function Playground() {
  const { _splat: runId } = useParams({ strict: false });
  const runs = useRuns();
  const go = useGo();
  const begun = (runs.data ?? []).filter((run) => (run.latestStep ?? -1) >= 0 && run.isOwner);
  const run = runs.data?.find((each) => each.id === runId);
  return (
    <Page
      title="Playground"
      actions={
        begun.length > 0 && (
          <span className="playground-choice">
            <Select
              aria-label="Run"
              value={runId ?? ""}
              onChange={(event) => go(event.target.value ? `/playground/${event.target.value}` : "/playground")}
            >
              <option value="">Choose a run …</option>
              {begun.map((each) => (
                <option key={each.id} value={each.id}>
                  {each.name}
                </option>
              ))}
            </Select>
            {run && <Link href={`/experiments/${run.id}`}>Open the run</Link>}
          </span>
        )
      }
    >
      {runs.isError && <ErrorNote error={runs.error} onRetry={() => runs.refetch()} />}
      {runs.isPending && <Skeleton lines={5} />}
      {runs.data && !runId && (begun.length ? <Choose runs={begun} /> : <None />)}
      {runs.data && runId && !run && <Empty title="There is no such run, or it is not yours" />}
      {run && <Room key={run.id} runId={run.id} live={!isOver(run.status)} rows={run.taskDigest !== ""} />}
    </Page>
  );
}

function None() {
  return (
    <Empty title="No model to chat with yet" icon="chat" command="benchmax launch">
      Once a run has started, you can chat with its model here, even while it trains.
    </Empty>
  );
}

function Choose({ runs }: { runs: { id: string; name: string }[] }) {
  return (
    <Empty
      title="Which model do you want to chat with?"
      icon="chat"
      actions={runs.slice(0, 6).map((run) => (
        <Link key={run.id} href={`/playground/${run.id}`} className="button">
          {run.name}
        </Link>
      ))}
    >
      Choose a run. Its model answers in the run's environment, with its tools, even while it trains.
    </Empty>
  );
}
