// How a rollout ended and why it was left out, in words.

const ENDS: Record<string, { label: string; hint: string; tone: "good" | "warn" | "bad" }> = {
  finished: { label: "Finished", hint: "The model gave a final answer.", tone: "good" },
  output_exceeded: { label: "Cut: turn too long", hint: "A turn reached its token limit.", tone: "warn" },
  context_exceeded: { label: "Cut: context full", hint: "The conversation no longer fits the model.", tone: "warn" },
  max_turns_exceeded: { label: "Cut: all turns used", hint: "The rollout reached its turn limit.", tone: "warn" },
  tool_budget_exceeded: {
    label: "Cut: too many tool calls",
    hint: "The rollout reached its tool call limit.",
    tone: "warn",
  },
  token_budget_exceeded: { label: "Cut: too many tokens", hint: "The rollout reached its token limit.", tone: "warn" },
  cost_budget_exceeded: { label: "Cut: too expensive", hint: "The rollout reached its cost limit.", tone: "warn" },
  time_budget_exceeded: { label: "Cut: too slow", hint: "The rollout reached its time limit.", tone: "warn" },
  env_error: {
    label: "Environment failed",
    hint: "The environment could not be set up. The rollout is not scored.",
    tone: "bad",
  },
  model_error: { label: "Model failed", hint: "The model did not reply. The rollout is not scored.", tone: "bad" },
  reward_error: {
    label: "Reward failed",
    hint: "The rollout finished, but its reward could not be computed.",
    tone: "bad",
  },
  group_reward_error: {
    label: "Group reward failed",
    hint: "The rollout finished, but the reward of its group could not be computed.",
    tone: "bad",
  },
};

export function ended(termination: string): { label: string; hint: string; tone: "good" | "warn" | "bad" | "neutral" } {
  const known = Object.hasOwn(ENDS, termination) ? ENDS[termination] : undefined;
  return known ?? { label: termination.replaceAll("_", " "), hint: "", tone: "neutral" };
}
