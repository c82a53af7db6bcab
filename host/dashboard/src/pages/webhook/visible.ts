// Long lists show only the rows near the visible part of the page: a hundred thousand rows would take seconds to lay out.

import { useEffect, useRef, useState } from 'preact/hooks';

export interface Range {
  /** Index of the first row. */
  first: number;
  /** Index after the last row. */
  last: number;
}

/** Rows beyond the edge of the screen, so that scrolling and the keyboard find rows there. */
const BEYOND = 8;
/** The property of the style sheet with the height of a row. */
const HEIGHT = '--row-height';

/** The rows near the screen. `top` is the distance from the top of the list to the top of the screen; all in pixels. */
export function visible(top: number, screen: number, height: number, count: number): Range {
  const within = (index: number): number => Math.min(count, Math.max(0, index));
  return { first: within(Math.floor(top / height) - BEYOND), last: within(Math.ceil((top + screen) / height) + BEYOND) };
}

/** The rows to show of a list in the page, which has `count` rows of the same height. `box` is the element with all rows. */
export function useVisible(count: number): { box: { current: HTMLDivElement | null }; range: Range; height: number } {
  const box = useRef<HTMLDivElement>(null);
  const [shown, show] = useState({ range: { first: 0, last: 0 }, height: 0 });
  useEffect(() => {
    let frame = 0;
    const measure = (): void => {
      frame = 0;
      if (box.current) {
        const height = Number.parseFloat(getComputedStyle(box.current).getPropertyValue(HEIGHT));
        const range = visible(-box.current.getBoundingClientRect().top, innerHeight, height, count);
        show((before) => (isSame(before.range, range) && before.height === height ? before : { range, height }));
      }
    };
    const plan = (): void => {
      frame ||= requestAnimationFrame(measure);
    };
    measure();
    addEventListener('scroll', plan, { passive: true });
    addEventListener('resize', plan);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener('scroll', plan);
      removeEventListener('resize', plan);
    };
  }, [count]);
  return { box, ...shown };
}

function isSame(left: Range, right: Range): boolean {
  return left.first === right.first && left.last === right.last;
}
