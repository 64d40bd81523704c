import { useState } from "react";
import { Button } from "./Button";
import { Icon } from "./Icon";

/** Puts text on the clipboard. */
export function Copy({
  text,
  label = "Copy",
  children,
}: {
  text: string | (() => string);
  label?: string;
  children?: string;
}) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    const value = typeof text === "function" ? text() : text;
    try {
      await navigator.clipboard.writeText(value);
    } catch {
      byHand(value); // an address without TLS has no clipboard
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <Button
      kind="quiet"
      size="small"
      className="copy"
      icon={<Icon name={done ? "check" : "copy"} />}
      aria-label={children ? undefined : done ? "Copied" : label}
      title={label}
      onClick={copy}
    >
      {children && (done ? "Copied" : children)}
    </Button>
  );
}

function byHand(text: string): void {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
