// Whether the browser is signed in, and whether the server can be reached: two facts the whole console shares.
import { useSyncExternalStore } from "react";

type State = { signedOut: boolean; away: boolean };

let state: State = { signedOut: false, away: false };
const listeners = new Set<() => void>();

function set(change: Partial<State>): void {
  const next = { ...state, ...change };
  if (next.signedOut === state.signedOut && next.away === state.away) return;
  state = next;
  for (const listener of listeners) listener();
}

export const session = {
  /** A call was answered with 401. */
  end: () => set({ signedOut: true }),
  begin: () => set({ signedOut: false }),
  /** A stream or a call found no server. */
  lost: () => set({ away: true }),
  found: () => set({ away: false }),
};

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useSession(): State {
  return useSyncExternalStore(subscribe, () => state);
}
