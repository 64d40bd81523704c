// The whole conversation, turn by turn. Everything in it is text of others: shown as it is, never as anything else.
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useMemo, useRef, useState } from "react";
import type { Details } from "../../api/rollouts";
import { Button, cx, format, Icon, marked, Plain } from "../../ui";
import { type Block, blocksOf } from "./blocks";
import { useMargin } from "./room";

const ROLES = new Map([
  ["system", "System"],
  ["user", "User"],
  ["assistant", "Assistant"],
  ["tool", "Tool result"],
  ["developer", "Developer"],
]);

export function Transcript({ details, scroller }: { details: Details; scroller: HTMLElement }) {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const blocks = useMemo(() => blocksOf(details, open), [details, open]);
  const top = useRef<HTMLDivElement>(null);
  const toggle = useCallback((key: string) => {
    setOpen((now) => {
      const next = new Set(now);
      if (!next.delete(key)) next.add(key);
      return next;
    });
  }, []);
  const virtual = useVirtualizer({
    count: blocks.length,
    getScrollElement: () => scroller,
    estimateSize: (index) => estimate(blocks[index] as Block),
    getItemKey: (index) => blocks[index]?.key ?? index,
    scrollMargin: useMargin(top, scroller),
    overscan: 2,
  });
  return (
    <div className="ro-talk" ref={top} style={{ height: virtual.getTotalSize() }} data-transcript="">
      {virtual.getVirtualItems().map((item) => (
        <div
          key={item.key}
          ref={virtual.measureElement}
          data-index={item.index}
          className="ro-block"
          style={{ transform: `translateY(${item.start - virtual.options.scrollMargin}px)` }}
        >
          <BlockView block={blocks[item.index] as Block} onToggle={toggle} />
        </div>
      ))}
    </div>
  );
}

function estimate(block: Block): number {
  if (block.kind === "text") return 20 + Math.ceil(block.text.length / 70) * 20;
  return block.kind === "turn" ? 34 : block.kind === "call" ? 36 : 24;
}

const BlockView = memo(function BlockView({ block, onToggle }: { block: Block; onToggle: (key: string) => void }) {
  switch (block.kind) {
    case "turn":
      return (
        <div className={cx("ro-turn", block.shown ? "ro-shown" : `ro-${known(block.role)}`)}>
          <span className="ro-role">{ROLES.get(block.role) ?? <Plain text={block.role.slice(0, 60)} />}</span>
          {block.shown && <span className="muted small">part of the prompt</span>}
          {block.name && <Plain text={block.name.slice(0, 120)} className="mono small clip" />}
          {block.size > 2_000 && <span className="muted small">{format.compact(block.size)} characters</span>}
        </div>
      );
    case "text":
      return block.text === "" ? (
        <p className="ro-text muted">(empty)</p>
      ) : (
        <pre
          className={cx(
            "ro-text",
            `ro-${known(block.role)}`,
            block.mono && "ro-mono",
            block.inCall && "ro-in-call",
            block.last && "ro-last",
            !/\s/.test(block.text) && "ro-solid",
          )}
        >
          {marked(block.text)}
        </pre>
      );
    case "more":
      return (
        <div className={cx("ro-more", block.inCall && "ro-in-call")}>
          <Button size="small" onClick={() => onToggle(block.fold)}>
            {block.open ? "Show less" : `Show all ${format.bytes(block.size)}`}
          </Button>
        </div>
      );
    case "label":
      return <div className="ro-label">{block.text}</div>;
    case "call":
      return (
        <button
          type="button"
          className={cx("ro-call", block.state === "error" && "ro-call-bad", block.open && "ro-call-open")}
          aria-expanded={block.open}
          onClick={() => onToggle(block.fold)}
        >
          <Icon name="chevron" className={cx("fold-mark", block.open && "fold-open")} size={13} />
          <Plain text={block.name.slice(0, 120)} className="mono strong" />
          <Plain text={block.brief} className="mono clip grow muted" />
          {block.state === "error" && <span className="ro-flag bad">failed</span>}
          {block.state === "none" && <span className="ro-flag muted">not run</span>}
          {block.seconds !== undefined && <span className="muted num small">{short(block.seconds)}</span>}
        </button>
      );
  }
});

function known(role: string): string {
  return /^[a-z]{1,12}$/.test(role) ? role : "unknown";
}

/** 12 ms, 1.4 s. */
export function short(seconds: number): string {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}
