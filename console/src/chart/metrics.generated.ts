// Made from benchmax.metrics by console/scripts/metrics.py (`make console-types`): change it there.

export type KnownMetric = {
  key: string;
  name: string;
  section: "main" | "rewards" | "rollouts" | "updates" | "speed";
  about: string;
  unit: string;
  better: "up" | "down" | "";
  min?: number;
  max?: number;
};

export const KNOWN_METRICS: KnownMetric[] = [
  {"key": "reward/mean", "name": "Reward", "section": "main", "about": "Mean reward of all scored rollouts of the step.", "unit": "", "better": "up", "min": 0, "max": 1},
  {"key": "solve_rate", "name": "Solved", "section": "main", "about": "Share of rollouts that solved their task: the primary component, or the total where none is named, is 1.", "unit": "share", "better": "up", "min": 0, "max": 1},
  {"key": "max@k", "name": "Max@k", "section": "main", "about": "Best reward of each prompt's rollouts, averaged over prompts.", "unit": "", "better": "up", "min": 0, "max": 1},
  {"key": "response_tokens/mean", "name": "Response length", "section": "main", "about": "Mean number of tokens the model wrote in a rollout.", "unit": "tokens", "better": "", "min": 0},
  {"key": "pass@k", "name": "Pass@k", "section": "rewards", "about": "Share of prompts that at least one rollout solved. It usually rises before the mean reward does.", "unit": "share", "better": "up", "min": 0, "max": 1},
  {"key": "reward/std", "name": "Spread of rewards", "section": "rewards", "about": "Standard deviation of rewards. At 0 there is nothing to learn from.", "unit": "", "better": "", "min": 0},
  {"key": "reward/min", "name": "Lowest reward", "section": "rewards", "about": "Lowest reward of the step.", "unit": "", "better": "up"},
  {"key": "reward/max", "name": "Highest reward", "section": "rewards", "about": "Highest reward of the step.", "unit": "", "better": "up"},
  {"key": "rollouts", "name": "Rollouts", "section": "rollouts", "about": "Rollouts in the step.", "unit": "", "better": "", "min": 0},
  {"key": "unscored", "name": "Unscored", "section": "rollouts", "about": "Share of rollouts whose reward could not be computed; they are left out, not counted as 0.", "unit": "share", "better": "down", "min": 0, "max": 1},
  {"key": "truncated", "name": "Cut off", "section": "rollouts", "about": "Share of rollouts that reached the token limit.", "unit": "share", "better": "down", "min": 0, "max": 1},
  {"key": "failed", "name": "Failed", "section": "rollouts", "about": "Share of rollouts that ended with an error.", "unit": "share", "better": "down", "min": 0, "max": 1},
  {"key": "turns/mean", "name": "Turns", "section": "rollouts", "about": "Mean number of turns of a rollout.", "unit": "", "better": "", "min": 0},
  {"key": "response_tokens/max", "name": "Longest response", "section": "rollouts", "about": "Tokens of the longest rollout.", "unit": "tokens", "better": "", "min": 0},
  {"key": "groups", "name": "Groups", "section": "rollouts", "about": "Prompts sampled in the step.", "unit": "", "better": "", "min": 0},
  {"key": "groups/used", "name": "Groups with signal", "section": "rollouts", "about": "Prompts whose rollouts differ in reward: only these teach something.", "unit": "", "better": "", "min": 0},
  {"key": "groups/guided", "name": "Groups shown a solution", "section": "rollouts", "about": "Prompts without signal whose known solution was learned from instead.", "unit": "", "better": "", "min": 0},
  {"key": "skipped_groups", "name": "Groups without signal", "section": "rollouts", "about": "Prompts whose rollouts all have the same reward.", "unit": "", "better": "", "min": 0},
  {"key": "loss", "name": "Loss", "section": "updates", "about": "Policy loss. Its size says little; watch the reward.", "unit": "", "better": ""},
  {"key": "grad_norm", "name": "Gradient norm", "section": "updates", "about": "Length of the gradient before clipping.", "unit": "", "better": "", "min": 0},
  {"key": "entropy", "name": "Entropy", "section": "updates", "about": "How undecided the model is about its next token. A fall to 0 means it stopped exploring.", "unit": "", "better": "", "min": 0},
  {"key": "kl", "name": "KL to the base model", "section": "updates", "about": "How far the model has moved from where it started.", "unit": "", "better": "", "min": 0},
  {"key": "moved", "name": "Moved in an update", "section": "updates", "about": "How far the step's updates moved the model: KL per rollout.", "unit": "", "better": "", "min": 0},
  {"key": "lr", "name": "Learning rate", "section": "updates", "about": "Step size of the optimiser.", "unit": "", "better": "", "min": 0},
  {"key": "ratio", "name": "Probability ratio", "section": "updates", "about": "New over old probability of the sampled tokens; 1 means unchanged.", "unit": "", "better": ""},
  {"key": "clip_fraction", "name": "Clipped tokens", "section": "updates", "about": "Share of tokens whose ratio was clipped.", "unit": "share", "better": "", "min": 0, "max": 1},
  {"key": "drift", "name": "Sampler drift", "section": "updates", "about": "Difference between the sampler's and trainer's log-probabilities of the same tokens.", "unit": "", "better": "", "min": 0},
  {"key": "tokens/loss", "name": "Tokens trained on", "section": "updates", "about": "Tokens that count in the loss.", "unit": "tokens", "better": "", "min": 0},
  {"key": "tokens/packed", "name": "Tokens computed", "section": "updates", "about": "Tokens sent through the model after packing.", "unit": "tokens", "better": "", "min": 0},
  {"key": "skipped_updates", "name": "Skipped updates", "section": "updates", "about": "Updates skipped because they were not finite.", "unit": "", "better": "", "min": 0},
  {"key": "seconds/sample", "name": "Sampling time", "section": "speed", "about": "Seconds spent on the step's rollouts.", "unit": "s", "better": "", "min": 0},
  {"key": "seconds/update", "name": "Update time", "section": "speed", "about": "Seconds spent on the step's updates.", "unit": "s", "better": "", "min": 0},
  {"key": "tokens_per_second", "name": "Tokens per second", "section": "speed", "about": "Sampled tokens divided by the step's time.", "unit": "", "better": "", "min": 0},
];

/** Those that each environment of a composed run has, too: `env/NAME/KEY`. */
export const PART_METRICS: string[] = ["reward/mean", "solve_rate", "pass@k", "max@k", "response_tokens/mean", "turns/mean", "rollouts", "unscored", "truncated", "failed"];
