// Light, dark, or as the system says; kept in this browser.
import { useSyncExternalStore } from "react";

export type Theme = "auto" | "light" | "dark";

const KEY = "benchmax.theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

function read(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "auto";
  } catch {
    return "auto";
  }
}

let theme = read();

function shown(): "light" | "dark" {
  return theme === "auto" ? (system.matches ? "dark" : "light") : theme;
}

function apply(): void {
  document.documentElement.dataset.theme = shown();
  for (const listener of listeners) listener();
}

export function setTheme(next: Theme): void {
  theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Private windows keep nothing.
  }
  apply();
}

system.addEventListener("change", apply);
apply();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The choice, and what is shown; charts draw anew when the second changes. */
export function useTheme(): { theme: Theme; shown: "light" | "dark" } {
  const chosen = useSyncExternalStore(subscribe, () => theme);
  const now = useSyncExternalStore(subscribe, shown);
  return { theme: chosen, shown: now };
}
