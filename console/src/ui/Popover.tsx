// Menus and hints, in the browser's top layer: nothing cuts them off.
import { type ReactNode, useId, useLayoutEffect, useRef, useState } from "react";
import { Button, type ButtonProps } from "./Button";
import { Icon } from "./Icon";

function place(box: HTMLElement, anchor: DOMRect, align: "left" | "right"): void {
  const { offsetWidth: width, offsetHeight: height } = box;
  const left = align === "right" ? anchor.right - width : anchor.left;
  const below = anchor.bottom + 6 + height < window.innerHeight;
  box.style.left = `${Math.max(8, Math.min(left, window.innerWidth - width - 8))}px`;
  box.style.top = `${below ? anchor.bottom + 6 : Math.max(8, anchor.top - height - 6)}px`;
}

export type MenuItem = {
  label: ReactNode;
  icon?: string;
  onSelect: () => void;
  danger?: boolean;
  disabled?: boolean;
  hint?: string;
};

/** A button that opens a list of actions. */
export function Menu({
  items,
  label,
  children,
  align = "right",
  ...button
}: { items: (MenuItem | null)[]; label: string; align?: "left" | "right" } & Omit<ButtonProps, "onClick">) {
  const id = useId();
  const anchor = useRef<HTMLSpanElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [open, setOpen] = useState(false);
  const toggle = (now: boolean) => {
    setOpen(now);
    if (now && box.current && anchor.current) {
      place(box.current, anchor.current.getBoundingClientRect(), align);
      box.current.querySelector<HTMLElement>("button:not(:disabled)")?.focus();
    }
  };
  const move = (key: string) => {
    const all = [...(box.current?.querySelectorAll<HTMLElement>("button:not(:disabled)") ?? [])];
    const now = all.indexOf(document.activeElement as HTMLElement);
    all[(now + (key === "ArrowDown" ? 1 : all.length - 1)) % all.length]?.focus();
  };
  return (
    <span ref={anchor} className="anchor">
      <Button
        {...button}
        popoverTarget={id}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-label={children ? undefined : label}
        title={children ? undefined : label}
        icon={button.icon ?? (children ? undefined : <Icon name="more" />)}
      >
        {children}
      </Button>
      <div
        ref={box}
        id={id}
        popover="auto"
        role="menu"
        aria-label={label}
        className="menu"
        onToggle={(event) => toggle((event.nativeEvent as ToggleEvent).newState === "open")}
        onKeyDown={(event) => /^Arrow(Up|Down)$/.test(event.key) && (event.preventDefault(), move(event.key))}
      >
        {items.map((item, index) =>
          item === null ? (
            <hr key={index} />
          ) : (
            <button
              key={index}
              type="button"
              role="menuitem"
              disabled={item.disabled}
              title={item.hint}
              className={item.danger ? "menu-danger" : undefined}
              onClick={() => (box.current?.hidePopover(), item.onSelect())}
            >
              {item.icon && <Icon name={item.icon} />}
              {item.label}
            </button>
          ),
        )}
      </div>
    </span>
  );
}

/** A hint beside what it explains, on hover and focus. */
export function Tip({ text, children, focusable }: { text: ReactNode; children: ReactNode; focusable?: boolean }) {
  const id = useId();
  const anchor = useRef<HTMLSpanElement>(null);
  const box = useRef<HTMLSpanElement>(null);
  const [open, setOpen] = useState(false);
  useLayoutEffect(() => {
    if (!open || !box.current || !anchor.current) return;
    box.current.showPopover();
    place(box.current, anchor.current.getBoundingClientRect(), "left");
  }, [open]);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it only shows more about what it holds
    <span
      ref={anchor}
      className="anchor"
      tabIndex={focusable ? 0 : undefined}
      aria-describedby={open ? id : undefined}
      onMouseEnter={() => setOpen(true)}
      onMouseLeave={() => setOpen(false)}
      onFocus={() => setOpen(true)}
      onBlur={() => setOpen(false)}
    >
      {children}
      {open && (
        <span ref={box} id={id} popover="manual" role="tooltip" className="tip">
          {text}
        </span>
      )}
    </span>
  );
}

/** A small "i" that explains a name. */
export function Info({ children, label = "What is this?" }: { children: ReactNode; label?: string }) {
  return (
    <Tip text={children}>
      <button type="button" className="info" aria-label={label}>
        i
      </button>
    </Tip>
  );
}
