// Metric keys in words: what a chart is called, how its value comes about, and where it stands on the page.

export type Metric = { key: string; name: string; about?: string; section: Section; min?: number; max?: number };
export type Section = "main" | "components" | "rewards" | "rollouts" | "updates" | "speed" | "other";

export const SECTIONS: Record<Exclude<Section, "main">, string> = {
  components: "Reward components",
  rewards: "More about rewards",
  rollouts: "Rollouts",
  updates: "Updates of the model",
  speed: "Speed",
  other: "Everything else",
};

export const MAIN = ["reward/mean", "solve_rate", "max@k", "response_tokens/mean"];

const KNOWN: Record<string, [name: string, section: Section, about: string, min?: number, max?: number]> = {
  "reward/mean": ["Reward", "main", "Mean reward of all scored rollouts of the step.", 0, 1],
  solve_rate: ["Solved", "main", "Share of rollouts with a reward of 1.", 0, 1],
  "max@k": ["Max@k", "main", "Best reward of each prompt's rollouts, averaged over prompts.", 0, 1],
  "response_tokens/mean": ["Response length", "main", "Mean number of tokens the model wrote in a rollout.", 0],
  "pass@k": [
    "Pass@k",
    "rewards",
    "Share of prompts that at least one rollout solved, with a reward of 1. It usually rises before the mean reward does.",
    0,
    1,
  ],
  "reward/std": [
    "Spread of rewards",
    "rewards",
    "Standard deviation of rewards. At 0 there is nothing to learn from.",
    0,
  ],
  "reward/min": ["Lowest reward", "rewards", "Lowest reward of the step."],
  "reward/max": ["Highest reward", "rewards", "Highest reward of the step."],
  rollouts: ["Rollouts", "rollouts", "Rollouts in the step.", 0],
  unscored: [
    "Unscored",
    "rollouts",
    "Share of rollouts whose reward could not be computed; they are left out, not counted as 0.",
    0,
    1,
  ],
  truncated: ["Cut off", "rollouts", "Share of rollouts that reached the token limit.", 0, 1],
  failed: ["Failed", "rollouts", "Share of rollouts that ended with an error.", 0, 1],
  "turns/mean": ["Turns", "rollouts", "Mean number of turns of a rollout.", 0],
  "response_tokens/max": ["Longest response", "rollouts", "Tokens of the longest rollout.", 0],
  groups: ["Groups", "rollouts", "Prompts sampled in the step.", 0],
  "groups/used": [
    "Groups with signal",
    "rollouts",
    "Prompts whose rollouts differ in reward: only those teach something.",
    0,
  ],
  "groups/guided": [
    "Groups shown a solution",
    "rollouts",
    "Prompts without signal whose known solution was learned from instead.",
    0,
  ],
  skipped_groups: ["Groups without signal", "rollouts", "Prompts whose rollouts all have the same reward.", 0],
  loss: ["Loss", "updates", "Policy loss. Its size says little; watch the reward."],
  grad_norm: ["Gradient norm", "updates", "Length of the gradient before clipping.", 0],
  entropy: [
    "Entropy",
    "updates",
    "How undecided the model is about its next token. A fall to 0 means it stopped exploring.",
    0,
  ],
  kl: ["KL to the base model", "updates", "How far the model has moved from where it began.", 0],
  moved: ["Moved in an update", "updates", "How far the updates of the step moved the model: KL, per rollout.", 0],
  lr: ["Learning rate", "updates", "Step size of the optimiser.", 0],
  ratio: ["Probability ratio", "updates", "New against old probability of the sampled tokens; 1 is unchanged."],
  clip_fraction: ["Clipped tokens", "updates", "Share of tokens whose ratio was clipped.", 0, 1],
  drift: [
    "Sampler drift",
    "updates",
    "Difference of sampler's and trainer's log-probabilities for the same tokens.",
    0,
  ],
  "tokens/loss": ["Tokens trained on", "updates", "Tokens that count in the loss.", 0],
  "tokens/packed": ["Tokens computed", "updates", "Tokens sent through the model after packing.", 0],
  skipped_updates: ["Skipped updates", "updates", "Updates left out because they were not finite.", 0],
  "seconds/sample": ["Sampling time", "speed", "Seconds to make the step's rollouts.", 0],
  "seconds/update": ["Update time", "speed", "Seconds to learn from them.", 0],
  tokens_per_second: ["Tokens per second", "speed", "Sampled tokens by the step's time.", 0],
};

const COMPONENT = /^reward_stats\/(.+)\/reward\/mean$/;

/** The reward components among the keys, in order. */
export function components(keys: Iterable<string>): string[] {
  return [...keys].flatMap((key) => COMPONENT.exec(key)?.[1] ?? []).sort();
}

export function metric(key: string): Metric {
  const known = Object.hasOwn(KNOWN, key) ? KNOWN[key] : undefined;
  if (known) return { key, name: known[0], section: known[1], about: known[2], min: known[3], max: known[4] };
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
