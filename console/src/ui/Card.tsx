import { type ReactNode, useState } from "react";
import { cx } from "./format";
import { Icon } from "./Icon";

/** A framed part of a page. */
export function Card({
  title,
  actions,
  children,
  flush,
  className,
}: {
  title?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  flush?: boolean;
  className?: string;
}) {
  return (
    <section className={cx("card", flush && "card-flush", className)}>
      {(title || actions) && (
        <header className="card-head">
          {title && <h2>{title}</h2>}
          {actions && <div className="row card-actions">{actions}</div>}
        </header>
      )}
      <div className="card-body">{children}</div>
    </section>
  );
}

/** A part that opens and closes; its content is made only while it is open. */
export function Fold({
  title,
  aside,
  open: initially = false,
  children,
}: {
  title: ReactNode;
  aside?: ReactNode;
  open?: boolean;
  children: ReactNode;
}) {
  const [open, setOpen] = useState(initially);
  return (
    <section className="fold">
      <button type="button" className="fold-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name="chevron" className={cx("fold-mark", open && "fold-open")} />
        <span>{title}</span>
        {aside && <span className="fold-aside">{aside}</span>}
      </button>
      {open && <div className="fold-body">{children}</div>}
    </section>
  );
}

/** Facts as name and value, in a row. */
export function Facts({ items }: { items: { name: string; value: ReactNode; hint?: string }[] }) {
  return (
    <dl className="facts">
      {items.map((item) => (
        <div key={item.name} title={item.hint}>
          <dt>{item.name}</dt>
          <dd>{item.value}</dd>
        </div>
      ))}
    </dl>
  );
}
