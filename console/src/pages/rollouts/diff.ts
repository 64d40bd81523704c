// What differs between two texts, by words: Myers' greedy algorithm, in slices so that the page stays alive, and with
// a limit after which the rest counts as changed.

export type Part = { kind: "same" | "left" | "right"; text: string };

const MOST_EDITS = 1_500;
const LINES_ABOVE = 60_000;
const MOST = 1_000_000;
const SLICE = 8;

/** The parts of both texts, in order; null when they are too long to compare. */
export async function diff(left: string, right: string, stopped: () => boolean = () => false): Promise<Part[] | null> {
  if (left === right) return left ? [{ kind: "same", text: left }] : [];
  if (left.length + right.length > MOST) return null;
  const cut = left.length + right.length > LINES_ABOVE ? /[^\n]*\n|[^\n]+/g : /\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu;
  const a: string[] = left.match(cut) ?? [];
  const b: string[] = right.match(cut) ?? [];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const middle = await edits(a.slice(start, a.length - end), b.slice(start, b.length - end), stopped);
  const parts: Part[] = [];
  add(parts, "same", a.slice(0, start).join(""));
  for (const part of middle) add(parts, part.kind, part.text);
  add(parts, "same", a.slice(a.length - end).join(""));
  return parts;
}

function add(parts: Part[], kind: Part["kind"], text: string): void {
  if (!text) return;
  const last = parts.at(-1);
  if (last?.kind === kind) last.text += text;
  else parts.push({ kind, text });
}

async function edits(a: string[], b: string[], stopped: () => boolean): Promise<Part[]> {
  const most = Math.min(a.length + b.length, MOST_EDITS);
  const reach = new Map<number, number>([[1, 0]]);
  const history: Map<number, number>[] = [];
  let since = performance.now();
  for (let depth = 0; depth <= most; depth++) {
    if (performance.now() - since > SLICE) {
      await new Promise((resolve) => setTimeout(resolve));
      if (stopped()) return [];
      since = performance.now();
    }
    history.push(new Map(reach));
    for (let diagonal = -depth; diagonal <= depth; diagonal += 2) {
      const down =
        diagonal === -depth ||
        (diagonal !== depth && (reach.get(diagonal - 1) ?? -1) < (reach.get(diagonal + 1) ?? -1));
      let x = down ? (reach.get(diagonal + 1) ?? 0) : (reach.get(diagonal - 1) ?? 0) + 1;
      while (x < a.length && x - diagonal < b.length && a[x] === b[x - diagonal]) x += 1;
      reach.set(diagonal, x);
      if (x >= a.length && x - diagonal >= b.length) return trace(history, a, b);
    }
  }
  return [
    { kind: "left", text: a.join("") },
    { kind: "right", text: b.join("") },
  ];
}

/** Back from the end along the furthest reaches. */
function trace(history: Map<number, number>[], a: string[], b: string[]): Part[] {
  const found: Part[] = [];
  let x = a.length;
  let y = b.length;
  for (let depth = history.length - 1; depth >= 0; depth--) {
    const reach = history[depth] as Map<number, number>;
    const diagonal = x - y;
    const down =
      diagonal === -depth || (diagonal !== depth && (reach.get(diagonal - 1) ?? -1) < (reach.get(diagonal + 1) ?? -1));
    const before = down ? diagonal + 1 : diagonal - 1;
    const fromX = depth === 0 ? 0 : (reach.get(before) ?? 0);
    const fromY = depth === 0 ? 0 : fromX - before;
    while (x > fromX && y > fromY) {
      x -= 1;
      y -= 1;
      found.push({ kind: "same", text: a[x] as string });
    }
    if (depth === 0) break;
    if (down) {
      y -= 1;
      found.push({ kind: "right", text: b[y] as string });
    } else {
      x -= 1;
      found.push({ kind: "left", text: a[x] as string });
    }
  }
  const parts: Part[] = [];
  for (const part of found.reverse()) add(parts, part.kind, part.text);
  return parts;
}
