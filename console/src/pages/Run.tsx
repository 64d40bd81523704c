// One run: its header and its tabs. Each tab is a file of its own in run/.
import { useParams, useRouterState } from "@tanstack/react-router";
import { type ComponentType, lazy, Suspense, useEffect, useMemo } from "react";
import { useLiveRun } from "../api/live";
import { isOver, prefetchRunEvents, useRunDetails } from "../api/queries";
import { prefetchScalars } from "../api/scalars";
import { Empty, ErrorNote, Link, Page, Skeleton, Tabs, useGo, useKeys } from "../ui";
import { RunContext, type RunView } from "./run/context";
import { Actions, Header, Title } from "./run/Header";

type Load = () => Promise<{ default: ComponentType }>;
const TABS: { id: string; label: string; view: ComponentType }[] = (
  [
    ["train", "Train", () => import("./run/Train")],
    ["eval", "Eval", () => import("./run/Eval")],
    ["rollouts", "Rollouts", () => import("./run/Rollouts")],
    ["compare", "Compare", () => import("./run/Compare")],
    ["playground", "Playground", () => import("./run/Playground")],
    ["checkpoints", "Checkpoints", () => import("./run/Checkpoints")],
    ["config", "Config", () => import("./run/Config")],
    ["logs", "Logs", () => import("./run/Logs")],
    ["system", "System", () => import("./run/System")],
  ] as [string, string, Load][]
).map(([id, label, load]) => ({ id, label, view: lazy(load) }));

/** What the owner alone may open. */
const PRIVATE = new Set(["playground", "logs"]);

export default function Run() {
  const { runId = "", tab = "train" } = useParams({ strict: false });
  const root = useRouterState({
    select: (state) => (state.location.pathname.startsWith("/train/") ? "/train" : "/experiments"),
  });
  const details = useRunDetails(runId);
  useEffect(() => {
    if (tab !== "train" && tab !== "eval") return;
    prefetchScalars(runId, tab);
    prefetchRunEvents(runId);
    import("./run/Charts");
  }, [runId, tab]);
  useLiveRun(runId, details.data?.status);
  const go = useGo();
  const base = `${root}/${encodeURIComponent(runId)}`;
  useKeys(Object.fromEntries(TABS.map((each, index) => [String(index + 1), () => go(`${base}/${each.id}`)])));
  const run = details.data;
  const view = useMemo<RunView | null>(
    () =>
      run
        ? {
            id: runId,
            run,
            live: !isOver(run.status),
            tabHref: (name, search = {}) => {
              const given = Object.entries(search).filter(([, value]) => value !== undefined) as [string, string][];
              return `${base}/${name}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
            },
          }
        : null,
    [run, runId, base],
  );
  const crumbs = [{ label: "Runs", href: "/experiments" }];
  if (!view) {
    return (
      <Page title="Run" crumbs={crumbs}>
        {details.isError ? (
          <>
            <ErrorNote error={details.error} onRetry={() => details.refetch()} />
            <div>
              <Link className="button" href="/experiments">
                Go to the runs
              </Link>
            </div>
          </>
        ) : (
          <Skeleton lines={6} />
        )}
      </Page>
    );
  }
  const shown = TABS.filter((each) => view.run.isOwner || !PRIVATE.has(each.id));
  const current = shown.find((each) => each.id === tab);
  return (
    <RunContext.Provider value={view}>
      <Page title={<Title run={view.run} />} name={view.run.name} crumbs={crumbs} actions={<Actions />}>
        <Header tab={tab} />
        <Tabs
          label="Parts of the run"
          current={tab}
          tabs={shown.map((each) => ({ id: each.id, label: each.label, href: `${base}/${each.id}` }))}
        />
        <Suspense fallback={<Skeleton lines={6} />}>
          {current ? <current.view /> : <Empty title="A run has no such tab" />}
        </Suspense>
      </Page>
    </RunContext.Provider>
  );
}
