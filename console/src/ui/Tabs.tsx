import { type ReactNode, useEffect, useRef } from "react";
import { Link } from "./Link";

export type Tab = { id: string; label: ReactNode; href?: string; count?: number };

/** Tabs; with `href` they are links (and permalinks), else buttons that call `onChange`. */
export function Tabs({
  tabs,
  current,
  onChange,
  label,
}: {
  tabs: Tab[];
  current: string;
  onChange?: (id: string) => void;
  label: string;
}) {
  const bar = useRef<HTMLElement>(null);
  // Where the tabs are wider than the page, the current one is brought into sight.
  useEffect(() => {
    const tab = bar.current?.querySelector<HTMLElement>("[aria-current]");
    if (!bar.current || !tab) return;
    const hidden = tab.offsetLeft < bar.current.scrollLeft;
    const beyond = tab.offsetLeft + tab.offsetWidth > bar.current.scrollLeft + bar.current.clientWidth;
    if (hidden || beyond) bar.current.scrollLeft = tab.offsetLeft - (bar.current.clientWidth - tab.offsetWidth) / 2;
  }, [current]);
  return (
    <nav className="tabs" aria-label={label} ref={bar}>
      {tabs.map((tab) => {
        const inside = (
          <>
            {tab.label}
            {tab.count !== undefined && <span className="tab-count">{tab.count}</span>}
          </>
        );
        const here = tab.id === current;
        return tab.href !== undefined ? (
          <Link key={tab.id} href={tab.href} className="tab" aria-current={here ? "page" : undefined}>
            {inside}
          </Link>
        ) : (
          <button
            key={tab.id}
            type="button"
            className="tab"
            aria-current={here ? "true" : undefined}
            onClick={() => onChange?.(tab.id)}
          >
            {inside}
          </button>
        );
      })}
    </nav>
  );
}

/** A few choices of which one holds. */
export function Segments<T extends string>({
  options,
  value,
  onChange,
  label,
}: {
  options: { value: T; label: ReactNode; title?: string }[];
  value: T;
  onChange: (value: T) => void;
  label: string;
}) {
  return (
    <div className="segments" role="group" aria-label={label}>
      {options.map((option) => (
        <button
          key={option.value}
          type="button"
          title={option.title}
          aria-pressed={option.value === value}
          onClick={() => onChange(option.value)}
        >
          {option.label}
        </button>
      ))}
    </div>
  );
}
