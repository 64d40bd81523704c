import { type RefObject, useCallback, useLayoutEffect, useState } from "react";

const LEAST = 420;
const BELOW = 16;

/** The height from where an element begins to the end of the window: panes that scroll by themselves fill it. */
export function useRoom(): { ref: (element: HTMLElement | null) => (() => void) | undefined; height: number } {
  const [height, setHeight] = useState(640);
  const ref = useCallback((element: HTMLElement | null) => {
    if (!element) return undefined;
    const measure = () => {
      const top = element.getBoundingClientRect().top + window.scrollY;
      // A phone shows one pane at a time, as high as its window.
      const least = window.innerWidth <= 860 ? window.innerHeight - BELOW : LEAST;
      setHeight(Math.max(least, Math.floor(window.innerHeight - top - BELOW)));
    };
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(document.body);
    window.addEventListener("resize", measure);
    return () => {
      watch.disconnect();
      window.removeEventListener("resize", measure);
    };
  }, []);
  return { ref, height };
}

/** How far below the top of what scrolls an element begins. */
export function useMargin(element: RefObject<HTMLElement | null>, scroller: HTMLElement): number {
  const [margin, setMargin] = useState(0);
  useLayoutEffect(() => {
    if (!element.current) return;
    const top = element.current.getBoundingClientRect().top - scroller.getBoundingClientRect().top + scroller.scrollTop;
    setMargin(Math.round(top));
  }, [element, scroller]);
  return margin;
}
