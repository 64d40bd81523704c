// Text from models, users and files. It is shown as it is: never as HTML, and what would be invisible gets a mark.
import type { ReactNode } from "react";

/** Characters that would not be seen, or turn the text around. */
export const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/u;
const NAMES: Record<string, string> = {
  "\u001b": "ESC",
  "\u0000": "NUL",
  "\r": "CR",
  "\u200b": "ZWSP",
  "\u200d": "ZWJ",
  "\u200e": "LRM",
  "\u200f": "RLM",
  "\u202a": "LRE",
  "\u202b": "RLE",
  "\u202c": "PDF",
  "\u202d": "LRO",
  "\u202e": "RLO",
  "\u2066": "LRI",
  "\u2067": "RLI",
  "\u2068": "FSI",
  "\u2069": "PDI",
};

/** Pieces of text and marks for `text`. */
export function marked(text: string): ReactNode {
  if (!HIDDEN.test(text)) return text;
  const found: ReactNode[] = [];
  const every = new RegExp(HIDDEN.source, "gu");
  let from = 0;
  for (const match of text.matchAll(every)) {
    const character = match[0];
    // A joiner between two emoji belongs to them.
    if (character === "\u200d" && match.index > 0 && text.charCodeAt(match.index - 1) > 0x2000) continue;
    found.push(text.slice(from, match.index));
    const code = `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
    found.push(
      <span className="hidden-mark" title={code} key={match.index}>
        {NAMES[character] ?? code}
      </span>,
    );
    from = match.index + character.length;
    if (found.length > 4000) break;
  }
  found.push(text.slice(from));
  return found;
}

/** `text` in a span that nothing in it can leave or turn around. */
export function Plain({ text, className }: { text: string; className?: string }) {
  return <bdi className={className}>{marked(text)}</bdi>;
}

/** Text in which `ticks` mark code. */
export function Ticked({ text }: { text: string }) {
  return text
    .split(/`([^`\n]+)`/)
    .map((part, index) => (index % 2 ? <code key={index}>{marked(part)}</code> : <Plain key={index} text={part} />));
}
