import { number } from "./format";

const WIDTH = 84;
const HEIGHT = 16;
/** Room for the line's own width. */
const EDGE = 1.5;

/** A curve as small as a word: only its shape is to be read. */
export function Sparkline({ values, label }: { values: readonly number[]; label: string }) {
  if (values.length < 2) return null;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const at = (value: number, index: number) => {
    const x = EDGE + (index / (values.length - 1)) * (WIDTH - 2 * EDGE);
    const y = high === low ? HEIGHT / 2 : HEIGHT - EDGE - ((value - low) / (high - low)) * (HEIGHT - 2 * EDGE);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  };
  const said = `${label}, from ${number(values[0])} to ${number(values.at(-1))}`;
  return (
    <svg className="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={said}>
      <title>{said}</title>
      <polyline points={values.map(at).join(" ")} />
    </svg>
  );
}
