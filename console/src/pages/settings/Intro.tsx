import type { ReactNode } from "react";

/** What a part of the settings is for, and the one thing to do in it. */
export function Intro({ children, action }: { children: ReactNode; action?: ReactNode }) {
  return (
    <div className="settings-intro">
      <p>{children}</p>
      {action}
    </div>
  );
}
