import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { clock, dateTime, utc, wait } from '../format';

/** Local time, with UTC on hover. */
export function Time({ at, show = dateTime }: { at: number; show?: (at: number) => string }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={utc(at)}>
      {show(at)}
    </time>
  );
}

/** The time now, by the second; only while a component uses it. */
const now = signal(Date.now());
let users = 0;
let timer = 0;

export function useNow(): number {
  useEffect(() => {
    users += 1;
    if (users === 1) {
      now.value = Date.now();
      timer = window.setInterval(() => {
        now.value = Date.now();
      }, 1_000);
    }
    return () => {
      users -= 1;
      if (users === 0) {
        clearInterval(timer);
      }
    };
  }, []);
  return now.value;
}

/** Time since `at`: `1:02:03`. */
export function Elapsed({ since }: { since: number }) {
  return <span class="figure">{clock(useNow() - since)}</span>;
}

/** Time until `at`: `8 s`. */
export function Countdown({ until }: { until: number }) {
  return <span class="figure">{wait(until - useNow())}</span>;
}
