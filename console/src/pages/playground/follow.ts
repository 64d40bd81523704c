// The newest words stay in sight, above the composer, unless the reader has scrolled up.
import { useCallback, useEffect, useLayoutEffect, useRef } from "react";
import type { Turn } from "../../api/playground";

/** Pixels from the end within which somebody still reads the newest words. */
const NEAR = 48;

/**
 * Gives the ref of an `end` after the composer, and how to go there when something else has grown. The composer sticks to
 * the window's lower edge and lies over the words there; with the end in sight it is in its own place, below them all.
 */
export function useFollow(left: Turn[], right: Turn[]) {
  const end = useRef<HTMLDivElement>(null);
  const follows = useRef(false);
  const said = left.length + right.length;
  const follow = useCallback(() => {
    if (follows.current) end.current?.scrollIntoView({ block: "nearest" });
  }, []);
  useEffect(() => {
    let before = window.scrollY;
    const look = () => {
      const below = (end.current?.getBoundingClientRect().bottom ?? 0) - window.innerHeight;
      if (below < NEAR) follows.current = true;
      else if (window.scrollY < before) follows.current = false;
      before = window.scrollY;
    };
    window.addEventListener("scroll", look, { passive: true });
    return () => window.removeEventListener("scroll", look);
  }, []);
  // Whoever says something wants to see the answer; an empty room is read from its top.
  useLayoutEffect(() => {
    follows.current = said > 0;
  }, [said]);
  useLayoutEffect(follow, [left, right]);
  return { end, follow };
}
