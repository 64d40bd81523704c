// Every rollout of the run: find one on the left, read it on the right.
import { useEffect, useMemo, useRef, useState } from "react";
import { useEvals } from "../../api/evals";
import { type Item, useOutline } from "../../api/rollouts";
import { Empty, ErrorNote, Skeleton, useKeys } from "../../ui";
import { Detail } from "../rollouts/Detail";
import { CLEARED, MODES, useView } from "../rollouts/filters";
import { HeatMap } from "../rollouts/HeatMap";
import { List, type Scale } from "../rollouts/List";
import "../rollouts/rollouts.css";
import { useRoom } from "../rollouts/room";
import type { Rows } from "../rollouts/sections";
import { Toolbar } from "../rollouts/Toolbar";
import { useRun } from "./context";

/** A window this wide has room for the list or for a rollout. */
const NARROW = 860;

export default function Rollouts() {
  const { id, run, live } = useRun();
  const modes = MODES.filter((mode) => run.modes.includes(mode));
  const evals = useEvals(id).data ?? [];
  const view = useView(modes[0] ?? "train");
  const scope = useMemo(
    () => ({ mode: view.filters.mode, externalEvalId: view.filters.externalEvalId }),
    [view.filters.mode, view.filters.externalEvalId],
  );
  const outline = useOutline(id, view.filters);
  const whole = useOutline(id, scope);
  const [more, setMore] = useState(view.byField);
  const scale = useMemo(() => scaleOf(whole.data), [whole.data]);
  const rows = useRef<Rows | null>(null);
  // A key that is held down goes on from where the last press led, shown or not.
  const at = useRef("");
  at.current = view.open;
  const open = (item: Item, beside: boolean) => {
    if (!beside) at.current = item.id;
    if (window.innerWidth <= NARROW) document.querySelector(".ro-frame")?.scrollIntoView();
    view.search.set(
      beside && view.open && item.id !== view.open ? { with: item.id } : { rollout: item.id, with: null },
    );
  };
  const move = async (by: 1 | -1, groups = false) => {
    const from = at.current;
    const next = await rows.current?.next(from, by, groups);
    // Whoever has opened another meanwhile reads that one.
    if (!next || at.current !== from) return;
    at.current = next.id;
    view.search.set({ rollout: next.id, with: null });
  };
  useFirst(view.open === "" && view.shape === "list" && outline.data !== undefined, () => move(1));
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    J: () => move(1, true),
    K: () => move(-1, true),
    Enter: () => document.querySelector<HTMLElement>(".ro-scroll")?.focus(),
    Escape: () => view.search.set(view.beside ? { with: null } : { rollout: null }),
  });
  const room = useRoom();
  if (!modes.length) return <Nothing live={live} />;
  return (
    <div className="ro">
      <Toolbar view={view} modes={modes} evals={evals} outline={whole.data} more={more} onMore={() => setMore(!more)} />
      {outline.error ? (
        <ErrorNote error={outline.error} onRetry={() => outline.refetch()} />
      ) : view.shape === "map" ? (
        <div className="ro-frame ro-frame-map" ref={room.ref} style={{ height: room.height }}>
          <HeatMap
            run={id}
            scope={scope}
            outline={whole.data}
            range={scale.reward}
            onOpen={(rollout, step) => view.search.set({ ...CLEARED, view: null, rollout, step }, { push: true })}
          />
        </div>
      ) : (
        <div
          className={view.open ? "ro-frame ro-frame-open" : "ro-frame"}
          ref={room.ref}
          style={{ height: room.height }}
        >
          <div className="ro-side">
            {outline.data ? (
              <List
                key={JSON.stringify(view.filters) + view.order}
                run={id}
                view={view}
                outline={outline.data}
                scale={scale}
                onOpen={open}
                onRows={(now) => (rows.current = now)}
              />
            ) : (
              <Skeleton lines={12} />
            )}
          </div>
          <Detail run={id} view={view} range={scale.reward} scope={scope} onMove={move} />
        </div>
      )}
    </div>
  );
}

/** The first rollout is opened at once, where there is room for it beside the list; who closes it is not asked again. */
function useFirst(ready: boolean, open: () => void): void {
  const done = useRef(false);
  useEffect(() => {
    if (!ready || done.current || window.innerWidth <= NARROW) return;
    done.current = true;
    open();
  });
}

function Nothing({ live }: { live: boolean }) {
  return (
    <Empty title="No rollouts yet" icon="chat">
      {live
        ? "They appear here as soon as the first step is done."
        : "This run ended before its first rollout was written."}
    </Empty>
  );
}

function scaleOf(outline: ReturnType<typeof useOutline>["data"]): Scale {
  let low = 0;
  let high = 0;
  let tokens = 1;
  for (const step of outline?.steps ?? []) {
    low = Math.min(low, step.lowest ?? low);
    high = Math.max(high, step.highest ?? high);
    tokens = Math.max(tokens, step.mostTokens);
  }
  return { reward: { low, high: high > low ? high : low + 1 }, tokens };
}
