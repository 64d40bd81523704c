import type { ReactNode } from "react";
import { ApiError } from "../api/client";
import { Button } from "./Button";
import { Copy } from "./Copy";
import { Icon } from "./Icon";
import { Ticked } from "./Plain";

/** Nothing here yet, and what to do about it. */
export function Empty({
  title,
  children,
  command,
  actions,
  icon,
}: {
  title: string;
  children?: ReactNode;
  command?: string;
  actions?: ReactNode;
  icon?: string;
}) {
  return (
    <div className="empty">
      {icon && <Icon name={icon} size={22} className="empty-icon" />}
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {command && <Command text={command} />}
      {actions && <div className="row">{actions}</div>}
    </div>
  );
}

/** A command to copy into a terminal. */
export function Command({ text }: { text: string }) {
  return (
    <div className="command">
      <code>{text}</code>
      <Copy text={text} label="Copy the command" />
    </div>
  );
}

/** What went wrong, in the server's words, and a way to try again. */
export function ErrorNote({ error, onRetry, title }: { error: unknown; onRetry?: () => void; title?: string }) {
  if (error instanceof ApiError && error.status === 401) return null;
  const text = error instanceof Error ? error.message : String(error);
  return (
    <div className="note note-bad" role="alert">
      <Icon name="warn" />
      <div>
        {title && <strong>{title}</strong>}
        <Ticked text={text} />
      </div>
      {onRetry && (
        <Button size="small" onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}

/** A remark between things. */
export function Note({
  tone = "info",
  children,
  actions,
}: {
  tone?: "info" | "warn" | "bad" | "good";
  children: ReactNode;
  actions?: ReactNode;
}) {
  return (
    <div className={`note note-${tone}`}>
      <Icon name={tone === "info" ? "info" : tone === "good" ? "check" : "warn"} />
      <div>{children}</div>
      {actions}
    </div>
  );
}
