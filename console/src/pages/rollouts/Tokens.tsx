// The exact tokens: how likely each sampled one was, and which were only given to the model and not learned from.
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useMemo, useRef, useState } from "react";
import type { Details } from "../../api/rollouts";
import { Command, cx, Empty, format, marked } from "../../ui";
import { chanceColour } from "./colour";
import { useMargin } from "./room";

const PER_BLOCK = 160;

type Token = { id: number; text: string; chance: number | null };
type Run = { key: number; sampled: boolean; tokens: Token[]; starts: boolean };

export function Tokens({ details, scroller }: { details: Details; scroller: HTMLElement }) {
  const runs = useMemo(() => runsOf(details), [details]);
  if (!runs) return <NotSaved />;
  return (
    <TokenBlocks runs={runs} readable={Boolean(details.tokenRuns?.some((run) => run.texts))} scroller={scroller} />
  );
}

function NotSaved() {
  return (
    <Empty title="This run did not save its tokens" icon="info">
      They take several times the space of the text, so they are saved only on request. Train with this setting to see
      how likely each token was:
      <br />
      <Command text="benchmax launch main.py --set save_tokens=true" />
    </Empty>
  );
}

function TokenBlocks({ runs, readable, scroller }: { runs: Run[]; readable: boolean; scroller: HTMLElement }) {
  const top = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<Token | null>(null);
  const virtual = useVirtualizer({
    count: runs.length,
    getScrollElement: () => scroller,
    estimateSize: (index) => 30 + ((runs[index]?.tokens.length ?? 0) / 12) * 22,
    scrollMargin: useMargin(top, scroller),
    overscan: 3,
  });
  const sampled = runs.filter((run) => run.sampled).flatMap((run) => run.tokens);
  const known = sampled.filter((token) => token.chance !== null);
  const surprise = known.length
    ? known.reduce((sum, token) => sum - Math.log(Math.max(1e-9, token.chance ?? 1)), 0) / known.length
    : null;
  return (
    <div className="stack">
      <div className="ro-legend small">
        <span>
          <b className="ro-token" style={{ background: chanceColour(1) }}>
            certain
          </b>{" "}
          <b className="ro-token" style={{ background: chanceColour(0.3) }}>
            30%
          </b>{" "}
          <b className="ro-token" style={{ background: chanceColour(0.01) }}>
            1%
          </b>
        </span>
        <span>
          <b className="ro-token ro-given">given</b> not learned from
        </span>
        <span className="muted">
          {format.plural(sampled.length, "sampled token")}, mean surprise {format.number(surprise, 2)} nats
        </span>
        <span className="ro-at num" aria-live="off">
          {at ? `token ${at.id}${at.chance === null ? "" : ` · ${format.percent(at.chance, 2)}`}` : "Point at a token"}
        </span>
      </div>
      {!readable && <p className="muted small">The run saved no vocabulary: tokens are shown by number.</p>}
      <div
        className="ro-talk ro-tokens"
        ref={top}
        style={{ height: virtual.getTotalSize() }}
        onPointerOver={(event) => {
          const place = (event.target as HTMLElement).dataset.token;
          if (place === undefined) return;
          const [run, token] = place.split(".").map(Number) as [number, number];
          setAt(runs[run]?.tokens[token] ?? null);
        }}
      >
        {virtual.getVirtualItems().map((item) => (
          <div
            key={item.key}
            ref={virtual.measureElement}
            data-index={item.index}
            className="ro-block"
            style={{ transform: `translateY(${item.start - virtual.options.scrollMargin}px)` }}
          >
            <TokenRun run={runs[item.index] as Run} index={item.index} />
          </div>
        ))}
      </div>
    </div>
  );
}

const TokenRun = memo(function TokenRun({ run, index }: { run: Run; index: number }) {
  return (
    <div className={cx("ro-tokenrun", run.starts && "ro-tokenrun-first")}>
      {run.starts && <div className="ro-label">{run.sampled ? "Sampled" : "Given"}</div>}
      <pre>
        {run.tokens.map((token, at) => (
          <span
            key={at}
            data-token={`${index}.${at}`}
            className={cx("ro-token", !run.sampled && "ro-given")}
            style={token.chance === null ? undefined : { background: chanceColour(token.chance) }}
          >
            {token.text === "\n" ? "↵\n" : marked(token.text)}
          </span>
        ))}
      </pre>
    </div>
  );
});

function runsOf(details: Details): Run[] | null {
  if (!details.tokenRuns?.length) return null;
  const found: Run[] = [];
  for (const each of details.tokenRuns) {
    for (let from = 0; from < each.ids.length; from += PER_BLOCK) {
      const tokens = each.ids.slice(from, from + PER_BLOCK).map((id, offset): Token => {
        const logprob = each.logprobs?.[from + offset];
        return {
          id,
          text: each.texts?.[from + offset] ?? `${id} `,
          chance: logprob === undefined || !each.sampled ? null : Math.exp(logprob),
        };
      });
      found.push({ key: found.length, sampled: each.sampled, tokens, starts: from === 0 });
    }
  }
  return found;
}
