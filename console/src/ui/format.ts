// Numbers and times in words people read at a glance.

/** A number with about `digits` significant digits: 0.0123, 12.3, 1,234. */
export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7))
    return value.toExponential(Math.max(0, digits - 1)).replace(/\.?0*e\+?/, "e");
  const zeros = size > 0 && size < 1 ? Math.max(0, -1 - Math.floor(Math.log10(size))) : 0;
  const places =
    size >= 1000 || Number.isInteger(value)
      ? 0
      : size >= 100
        ? 1
        : size >= 1
          ? Math.max(0, digits - 1)
          : digits + zeros;
  return value.toLocaleString("en-US", { maximumFractionDigits: places });
}

/** With its sign: +0.12, −3. */
export function signed(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined) return "–";
  return (value > 0 ? "+" : value < 0 ? "−" : "±") + number(Math.abs(value), digits);
}

/** A reward always has three places, so that rewards below each other line up: 0.200, 0.343. */
export function reward(value: number | null | undefined, places = 3): string {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (!(size < 1000) || (size > 0 && size < 0.5 * 10 ** -places)) return number(value);
  return value.toFixed(size >= 10 ? Math.min(2, places) : places);
}

/** A difference of rewards, with its sign: +0.120, −0.030. */
export function gain(value: number | null | undefined, places = 3): string {
  if (value === null || value === undefined) return "–";
  return (value > 0 ? "+" : value < 0 ? "−" : "±") + reward(Math.abs(value), places);
}

/** 1.2k, 3.4M. */
export function compact(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en-US", { notation: "compact", maximumFractionDigits: 1 });
}

export function percent(value: number | null | undefined, places = 1): string {
  return value === null || value === undefined
    ? "–"
    : `${(value * 100).toFixed(value === 0 || value === 1 ? 0 : places)}%`;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let size = value;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${size.toFixed(unit === 0 || size >= 100 ? 0 : 1)} ${units[unit]}`;
}

/** 42 s, 3 m 05 s, 2 h 10 m, 4 d 3 h. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${String(whole % 60).padStart(2, "0")} s`;
  if (whole < 86_400)
    return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} m`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** just now, 3 min ago, 2 days ago. */
export function ago(then: string | number | Date, now: number): string {
  const seconds = (now - new Date(then).getTime()) / 1000;
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h ago`;
  const days = Math.round(seconds / 86_400);
  return days < 60 ? `${days} day${days === 1 ? "" : "s"} ago` : new Date(then).toLocaleDateString();
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en-US")} ${count === 1 ? one : many}`;
}

export function cx(...names: (string | false | null | undefined)[]): string {
  return names.filter(Boolean).join(" ");
}
