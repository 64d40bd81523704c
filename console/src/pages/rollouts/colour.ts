// Colours that say how good something is. Every number that has one is written beside it too.

export type Range = { low: number; high: number };

/** Where a value stands in a range, 0 to 1. */
export function share(value: number, { low, high }: Range): number {
  if (high <= low) return value > 0 ? 1 : 0;
  return Math.min(1, Math.max(0, (value - low) / (high - low)));
}

/** From bad over middling to good. */
export function heat(at: number): string {
  const [from, to, part] = at < 0.5 ? ["--heat-low", "--heat-mid", at * 2] : ["--heat-mid", "--heat-high", at * 2 - 1];
  return `color-mix(in oklab, var(${from}), var(${to}) ${Math.round(part * 100)}%)`;
}

export function rewardColour(value: number | null | undefined, range: Range): string {
  return value === null || value === undefined ? "var(--heat-none)" : heat(share(value, range));
}

/** Against zero: below it, about it, above it. */
export function advantageColour(value: number | null | undefined): string {
  if (value === null || value === undefined) return "var(--heat-none)";
  const strength = Math.min(1, Math.abs(value) / 2);
  const to = value < 0 ? "--heat-low" : "--heat-high";
  return `color-mix(in oklab, var(--heat-none), var(${to}) ${Math.round(strength * 100)}%)`;
}

/** How many of the most tokens there were. */
export function tokenColour(value: number, most: number): string {
  const part = most > 0 ? Math.min(1, value / most) : 0;
  return `color-mix(in oklab, var(--heat-none), var(--series-2) ${Math.round(part * 100)}%)`;
}

/** How likely a sampled token was: certain ones are plain, surprising ones stand out. */
export function chanceColour(chance: number): string {
  const surprise = 1 - Math.min(1, Math.max(0, chance)) ** 0.5;
  return `color-mix(in oklab, transparent, var(--heat-low) ${Math.round(surprise * 75)}%)`;
}
