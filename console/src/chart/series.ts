// Series and what is drawn of them: smoothing, and buckets that keep the extremes when there are more points than pixels.

/** Values by step (or second). `low` and `high` are there when each point already stands for several steps. */
export type Series = { x: Float64Array; y: Float64Array; low?: Float64Array; high?: Float64Array };

/** What is drawn: one point per bucket, with the smoothed and the raw mean and the raw extremes. */
export type Drawn = {
  x: number[];
  smooth: (number | null)[];
  raw: (number | null)[];
  low: number[];
  high: number[];
  bucketed: boolean;
};

type Point = { step: number; value: number; min?: number | null; max?: number | null };

/** Points as arrays; `first` is what step 0 is called. */
export function fromPoints(points: readonly Point[], first = 0): Series {
  const x = Float64Array.from(points, (point) => point.step + first);
  const y = Float64Array.from(points, (point) => point.value);
  if (!points.some((point) => typeof point.max === "number" && point.max !== point.min)) return { x, y };
  const low = Float64Array.from(points, (point) => point.min ?? point.value);
  return { x, y, low, high: Float64Array.from(points, (point) => point.max ?? point.value) };
}

/**
 * A moving average that forgets by distance, not by count, and is not pulled towards 0 at its start. `weight` is 0
 * (as it is) to 1 (flat).
 */
export function smooth({ x, y }: Series, weight: number): Float64Array {
  const found = new Float64Array(y.length);
  if (weight <= 0 || y.length < 2) return y.slice();
  const keep = Math.min(Math.sqrt(weight), 0.999);
  const range = x[x.length - 1]! - x[0]! || 1;
  const scale = Math.min(y.length, 1000) / range;
  let sum = 0;
  let weights = 0;
  let before = x[0]!;
  for (let i = 0; i < y.length; i++) {
    const value = y[i]!;
    if (Number.isFinite(value)) {
      const fade = keep ** ((x[i]! - before) * scale);
      sum = sum * fade + value;
      weights = weights * fade + 1;
      before = x[i]!;
    }
    found[i] = weights > 0 ? sum / weights : Number.NaN;
  }
  return found;
}

/** The first index with x[i] >= value. */
export function at(x: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The index whose x is nearest to `value`; -1 when there is none. */
export function nearest(x: ArrayLike<number>, value: number): number {
  const right = at(x, value);
  if (right === 0) return x.length ? 0 : -1;
  if (right === x.length) return right - 1;
  return value - x[right - 1]! <= x[right]! - value ? right - 1 : right;
}

/** At most `most` points of a series within `range` (and one beyond each end, so that lines reach the frame). */
export function draw(series: Series, smoothed: Float64Array, range: [number, number] | null, most: number): Drawn {
  const from = range ? Math.max(0, at(series.x, range[0]) - 1) : 0;
  const to = range ? Math.min(series.x.length, at(series.x, range[1]) + 2) : series.x.length;
  const count = to - from;
  const size = Math.max(1, Math.ceil(count / most));
  const drawn: Drawn = {
    x: [],
    smooth: [],
    raw: [],
    low: [],
    high: [],
    bucketed: size > 1 || series.low !== undefined,
  };
  for (let start = from; start < to; start += size) {
    const end = Math.min(to, start + size);
    let low = Number.POSITIVE_INFINITY;
    let high = Number.NEGATIVE_INFINITY;
    let sum = 0;
    let seen = 0;
    let soft = 0;
    for (let i = start; i < end; i++) {
      const value = series.y[i]!;
      soft += smoothed[i]!;
      if (!Number.isFinite(value)) continue;
      const least = series.low?.[i] ?? value;
      const most = series.high?.[i] ?? value;
      if (least < low) low = least;
      if (most > high) high = most;
      sum += value;
      seen += 1;
    }
    drawn.x.push(series.x[(start + end - 1) >> 1]!);
    drawn.raw.push(seen ? sum / seen : null);
    drawn.smooth.push(Number.isFinite(soft) ? soft / (end - start) : null);
    drawn.low.push(seen ? low : Number.NaN);
    drawn.high.push(seen ? high : Number.NaN);
  }
  return drawn;
}

/** The frame of the values: all of them, or all but the most extreme hundredth on each side. */
export function frame(values: Iterable<number | null>, outliers: boolean): [number, number] | null {
  const found: number[] = [];
  for (const value of values) if (value !== null && Number.isFinite(value)) found.push(value);
  if (found.length === 0) return null;
  found.sort((a, b) => a - b);
  const cut = outliers ? 0 : Math.floor(found.length / 100);
  return [found[cut]!, found[found.length - 1 - cut]!];
}

/** Seconds of work up to each step, from what each step took; points that stand for several steps count for all. */
export function clock(parts: readonly Series[]): Series {
  const x = parts[0]?.x ?? new Float64Array();
  const y = new Float64Array(x.length);
  let sum = 0;
  for (let i = 0; i < x.length; i++) {
    const steps = i === 0 ? 1 : x[i]! - x[i - 1]!;
    for (const part of parts) {
      const value = part.y[nearest(part.x, x[i]!)];
      if (value !== undefined && Number.isFinite(value)) sum += value * steps;
    }
    y[i] = sum;
  }
  return { x, y };
}

/** When a clock shows `step`. */
export function secondsAt({ x, y }: Series, step: number): number {
  const right = at(x, step);
  if (x.length === 0) return 0;
  if (right === x.length) return y[x.length - 1]!;
  if (right === 0 || x[right] === step) return y[right]!;
  const part = (step - x[right - 1]!) / (x[right]! - x[right - 1]!);
  return y[right - 1]! + part * (y[right]! - y[right - 1]!);
}
