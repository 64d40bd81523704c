import type { ButtonHTMLAttributes, ReactNode } from "react";
import { cx } from "./format";
import { Spinner } from "./Spinner";

export type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement> & {
  /** `primary` once per view; `danger` for what cannot be undone; `quiet` has no frame. */
  kind?: "primary" | "plain" | "quiet" | "danger";
  size?: "small" | "normal";
  icon?: ReactNode;
  busy?: boolean;
};

export function Button({
  kind = "plain",
  size = "normal",
  icon,
  busy,
  children,
  className,
  disabled,
  ...rest
}: ButtonProps) {
  const bare = icon !== undefined && !children;
  return (
    <button
      type="button"
      className={cx("button", `button-${kind}`, size === "small" && "button-small", bare && "button-icon", className)}
      disabled={disabled || busy}
      aria-busy={busy || undefined}
      {...rest}
    >
      {busy ? <Spinner /> : icon}
      {children}
    </button>
  );
}
