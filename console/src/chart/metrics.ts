// Metric keys in words: what a chart is called, how its value comes about, and where it stands on the page.

import { KNOWN_METRICS, PART_METRICS } from "./metrics.generated";

export type Metric = { key: string; name: string; about?: string; section: Section; min?: number; max?: number };
export type Section =
  | "main"
  | "environments"
  | "parts"
  | "components"
  | "rewards"
  | "rollouts"
  | "updates"
  | "speed"
  | "other";

export const SECTIONS: Record<Exclude<Section, "main">, string> = {
  environments: "Environments",
  components: "Reward components",
  parts: "More about each environment",
  rewards: "More about rewards",
  rollouts: "Rollouts",
  updates: "Model updates",
  speed: "Speed",
  other: "Other",
};

export const MAIN = KNOWN_METRICS.filter((each) => each.section === "main").map((each) => each.key);

const KNOWN = new Map(KNOWN_METRICS.map((each) => [each.key, each]));

/** A number of one of the environments that a run is composed of. */
const PART = /^env\/([^/]+)\/(.+)$/;
/** Shown of each environment before everything else. */
const PART_FIRST = PART_METRICS.slice(0, 2);

const COMPONENT = /^reward_stats\/(.+)\/reward\/mean$/;

/** The reward components among the keys, in order. */
export function components(keys: Iterable<string>): string[] {
  return [...keys].flatMap((key) => COMPONENT.exec(key)?.[1] ?? []).sort();
}

export function metric(key: string): Metric {
  const known = KNOWN.get(key);
  if (known) return known;
  const [, environment, measured] = PART.exec(key) ?? [];
  const whole = measured === undefined ? undefined : KNOWN.get(measured);
  if (environment !== undefined && whole && PART_METRICS.includes(whole.key))
    return {
      ...whole,
      key,
      name: `${environment}: ${whole.name}`,
      section: PART_FIRST.includes(whole.key) ? "environments" : "parts",
      about: `${whole.about} For the environment “${environment}” only.`,
    };
  const component = COMPONENT.exec(key)?.[1];
  if (component)
    return {
      key,
      name: component,
      section: "components",
      about: `Mean of the reward component “${component}”.`,
      min: 0,
      max: 1,
    };
  const words = key.replace(/[/_]+/g, " ").trim();
  const section: Section = /second|per_sec|latency|throughput/.test(key)
    ? "speed"
    : /reward/.test(key)
      ? "rewards"
      : "other";
  return { key, name: words ? words[0]!.toUpperCase() + words.slice(1) : key, section };
}

/** Keys by section, each section sorted by name. */
export function sections(keys: Iterable<string>): Map<Section, Metric[]> {
  const found = new Map<Section, Metric[]>();
  for (const key of keys) {
    const one = metric(key);
    const section = one.section === "main" && !MAIN.includes(key) ? "other" : one.section;
    found.set(section, [...(found.get(section) ?? []), one]);
  }
  for (const list of found.values()) list.sort((a, b) => a.name.localeCompare(b.name));
  return found;
}
