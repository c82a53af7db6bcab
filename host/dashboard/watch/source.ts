// Whether there is something to play: asked of the index, which counts against no limit, not of the stream status, whose 60
// requests a minute belong to the site.

import type { Reason } from './text';

/** What the index says. */
export type Found = 'live' | Extract<Reason, 'offline' | 'lost' | 'busy' | 'refused' | 'forbidden'>;

const ANSWER_MS = 10_000;
/** Between two looks while the stream is offline; each viewer's differs, so that they do not all come at once. */
const LOOK_MS = 4_000;
/** The same while nobody sees the page. */
const HIDDEN_LOOK_MS = 20_000;
/** After a failure: doubled each time from the first to the second. */
const RETRY_MS_MIN = 1_000;
const RETRY_MS_MAX = 15_000;

/** Asks the index. */
export async function look(index: string): Promise<Found> {
  try {
    const answer = await fetch(index, {
      credentials: 'omit',
      referrerPolicy: 'no-referrer',
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    return found(answer.status);
  } catch {
    return 'lost';
  }
}

function found(status: number): Found {
  switch (status) {
    case 200:
      return 'live';
    case 404:
      return 'offline';
    case 400:
    case 401:
      return 'refused';
    case 403:
      return 'forbidden';
    case 429:
      return 'busy';
    default:
      return 'lost';
  }
}

/** How long to wait before the next look after `tries` of the same outcome. */
export function pause(outcome: Found, tries: number): number {
  const spread = 0.75 + Math.random() / 2;
  if (outcome === 'offline') {
    return (document.hidden ? HIDDEN_LOOK_MS : LOOK_MS) * spread;
  }
  const doubled = RETRY_MS_MIN * 2 ** Math.min(tries, 10);
  return Math.min(doubled, RETRY_MS_MAX) * spread;
}

/** Waits; a page that comes to the front, or a network that comes back, looks at once. */
export function wait(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
      window.removeEventListener('online', done);
      resolve();
    };
    const seen = (): void => {
      if (!document.hidden) {
        done();
      }
    };
    const timer = setTimeout(done, ms);
    document.addEventListener('visibilitychange', seen);
    window.addEventListener('online', done);
  });
}
