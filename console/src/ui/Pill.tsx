import type { ReactNode } from "react";
import { cx } from "./format";

export type Tone = "neutral" | "good" | "warn" | "bad" | "info" | "live";

/** A word about state. `live` has a beating dot. */
export function Pill({
  tone = "neutral",
  dot,
  title,
  children,
}: {
  tone?: Tone;
  dot?: boolean;
  title?: string;
  children: ReactNode;
}) {
  return (
    <span className={cx("pill", `pill-${tone}`)} title={title}>
      {(dot || tone === "live") && <span className="pill-dot" aria-hidden="true" />}
      {children}
    </span>
  );
}

/** A tag or a chosen filter; with `onRemove` it can be taken away. */
export function Chip({
  children,
  onClick,
  onRemove,
  on,
  label,
}: {
  children: ReactNode;
  onClick?: () => void;
  onRemove?: () => void;
  on?: boolean;
  label?: string;
}) {
  return (
    <span className={cx("chip", on && "chip-on")}>
      {onClick ? (
        <button type="button" onClick={onClick} aria-pressed={on}>
          {children}
        </button>
      ) : (
        children
      )}
      {onRemove && (
        <button type="button" className="chip-x" aria-label={`Remove ${label ?? ""}`.trim()} onClick={onRemove}>
          ×
        </button>
      )}
    </span>
  );
}
