// Steps as people count them. Files and the API count training steps from 0; an evaluation after n steps has the number n.

/** The number of a step as it is shown: training begins with step 1, an evaluation has the steps done before it. */
export function shownStep(mode: string, step: number): number {
  return mode === "train" ? step + 1 : step;
}

/** What the API calls a step that is shown as this. */
export function wireStep(mode: string, shown: number): number {
  return mode === "train" ? shown - 1 : shown;
}

/** "Step 4", or "Before training" for the evaluation that comes first. */
export function stepName(mode: string, step: number): string {
  if (mode === "eval" && step === 0) return "Before training";
  return `Step ${shownStep(mode, step).toLocaleString("en-US")}`;
}
