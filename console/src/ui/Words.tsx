import type { ReactNode } from "react";
import { ago, bytes, compact, duration, number, percent, reward, signed } from "./format";
import { useNow } from "./hooks";

/** A moment, as "3 min ago"; the exact time on hover. */
export function Time({ at }: { at: string | null | undefined }) {
  const now = useNow(10_000);
  if (!at) return <span className="muted">–</span>;
  return (
    <time dateTime={at} title={new Date(at).toLocaleString()}>
      {ago(at, now)}
    </time>
  );
}

type As = "number" | "reward" | "signed" | "compact" | "percent" | "bytes" | "duration";
const FORMATS: Record<As, (value: number | null | undefined) => string> = {
  number,
  reward,
  signed,
  compact,
  percent,
  bytes,
  duration,
};

/** A number in tabular figures. */
export function Num({ value, as = "number", digits }: { value: number | null | undefined; as?: As; digits?: number }) {
  const text = as === "number" && digits !== undefined ? number(value, digits) : FORMATS[as](value);
  return (
    <span className="num" title={typeof value === "number" && as === "number" ? String(value) : undefined}>
      {text}
    </span>
  );
}

/** The key to press. */
export function KeyHint({ children }: { children: ReactNode }) {
  return <kbd>{children}</kbd>;
}
