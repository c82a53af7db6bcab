// Whether there is something to play: asked of the index, which counts against no limit, not of the stream status, whose 60
// requests a minute belong to the site.

import type { Listed } from './signal';
import type { Reason } from './text';

/** What the index says. */
export type Found = 'live' | Extract<Reason, 'starting' | 'offline' | 'lost' | 'busy' | 'refused' | 'forbidden'>;

const ANSWER_MS = 10_000;
/** Between two looks while the stream is offline; each viewer's differs, so that they do not all come at once. */
const LOOK_MS = 4_000;
/** While the first segment is on its way. */
const STARTING_MS = 1_000;
/** The same while nobody sees the page, or nobody has pressed play. */
const HIDDEN_LOOK_MS = 20_000;
/** After a failure: doubled each time from the first to the second. */
const RETRY_MS_MIN = 1_000;
const RETRY_MS_MAX = 15_000;
/** While the key opens nothing: the stream may be switched on again. */
const REFUSED_MS = 20_000;

function ask(address: string | URL): Promise<Response> {
  return fetch(address, { credentials: 'omit', referrerPolicy: 'no-referrer', signal: AbortSignal.timeout(ANSWER_MS) });
}

/** Asks the index. */
export async function look(index: string): Promise<Found> {
  try {
    const { status, headers } = await ask(index);
    return status === 404 && headers.has('Retry-After') ? 'starting' : found(status);
  } catch {
    return 'lost';
  }
}

/** How many watch; `null` when that cannot be had. */
export async function viewers(address: string): Promise<number | null> {
  try {
    const { viewers } = (await (await ask(address)).json()) as { viewers?: unknown };
    return typeof viewers === 'number' ? viewers : null;
  } catch {
    return null;
  }
}

/** What the first playlist of the index lists now; `null` when that cannot be had. */
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

/** Enough of the end of a playlist that no two versions are alike in it. */
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

/** How long to wait before the next look after `tries` of the same outcome; `ready` while the viewer has to press play. */
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
