import { createContext, useContext } from "react";
import type { Schemas } from "../../api/client";

export type RunView = {
  id: string;
  run: Schemas["RunDetails"];
  /** Whether it still goes on. */
  live: boolean;
  /** The address of a tab: `tabHref("rollouts", { step: 3 })`. */
  tabHref: (tab: string, search?: Record<string, string | number | undefined>) => string;
};

export const RunContext = createContext<RunView | null>(null);

/** The run whose page this is. */
export function useRun(): RunView {
  const view = useContext(RunContext);
  if (!view) throw new Error("useRun is for tabs of the run page.");
  return view;
}

/** As many runs as there are colours for beside one in a chart. */
export const MOST_BESIDE = 6;
