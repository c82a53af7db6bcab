// Checks whether the stream can be played. Uses the index, which has no rate limit, and not the stream status, whose 60 requests
// a minute are for the site.

import type { Listed } from './signal';
import type { Reason } from './text';

/** State of the index. */
export type Found = 'live' | Extract<Reason, 'starting' | 'offline' | 'lost' | 'busy' | 'refused' | 'forbidden'>;

const ANSWER_MS = 10_000;
/** Interval of checks while the stream is offline, with jitter so that viewers do not check at the same time. */
const LOOK_MS = 4_000;
/** Interval while the first segment is being made. */
const STARTING_MS = 1_000;
/** Interval while the page is hidden or waits for a click. */
const HIDDEN_LOOK_MS = 20_000;
/** Retry delay after failures: doubled each time from the minimum to the maximum. */
const RETRY_MS_MIN = 1_000;
const RETRY_MS_MAX = 15_000;
/** Interval while the key is refused: the stream may be enabled again. */
const REFUSED_MS = 20_000;

function ask(address: string | URL, more: RequestInit = {}): Promise<Response> {
  return fetch(address, { credentials: 'omit', referrerPolicy: 'no-referrer', signal: AbortSignal.timeout(ANSWER_MS), ...more });
}

/** Checks the index, or with another method the file of a clip. */
export async function look(index: string, method: 'GET' | 'HEAD' = 'GET'): Promise<Found> {
  try {
    const { status, headers } = await ask(index, { method });
    return status === 404 && headers.has('Retry-After') ? 'starting' : found(status);
  } catch {
    return 'lost';
  }
}

/** Whether the first byte of a file can be fetched. */
export async function hasBytes(file: string): Promise<boolean> {
  try {
    return (await ask(file, { headers: { Range: 'bytes=0-0' } })).ok;
  } catch {
    return false;
  }
}

/** Number of viewers; `null` if not available. */
export async function viewers(address: string): Promise<number | null> {
  try {
    const { viewers } = (await (await ask(address)).json()) as { viewers?: unknown };
    return typeof viewers === 'number' ? viewers : null;
  } catch {
    return null;
  }
}

/** Summary of the first playlist of the index; `null` if not available. */
export async function listed(index: string): Promise<Listed | null> {
  try {
    const entry = await (await ask(index)).text();
    const child = entry.split('\n').find((line) => line !== '' && !line.startsWith('#')) ?? '';
    const answer = await ask(new URL(child, new URL(index, location.href)));
    return answer.ok ? read(await answer.text()) : null;
  } catch {
    return null;
  }
}

/** Length of the end of a playlist that differs between any two versions. */
const END_CHARS = 300;

function read(playlist: string): Listed {
  return {
    version: playlist.slice(-END_CHARS),
    live: !playlist.includes('#EXT-X-ENDLIST'),
    targetSecs: Number(/#EXT-X-TARGETDURATION:(\d+)/.exec(playlist)?.[1] ?? 0),
    ageSecs: null,
  };
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

/** Delay before the next check after `tries` with the same outcome; `ready` while the page waits for a click. */
export function pause(outcome: Found | 'ready', tries: number): number {
  const spread = 0.75 + Math.random() / 2;
  if (outcome === 'ready') {
    return HIDDEN_LOOK_MS * spread;
  }
  if (outcome === 'refused') {
    return REFUSED_MS * spread;
  }
  if (outcome === 'starting') {
    return STARTING_MS * spread;
  }
  if (outcome === 'offline') {
    return (document.hidden ? HIDDEN_LOOK_MS : LOOK_MS) * spread;
  }
  const doubled = RETRY_MS_MIN * 2 ** Math.min(tries, 10);
  return Math.min(doubled, RETRY_MS_MAX) * spread;
}

/** Waits; ends early when the page becomes visible or the network returns. */
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
