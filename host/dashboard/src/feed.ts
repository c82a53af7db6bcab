// The event feed of the account: one connection for the tab, closed while the tab is hidden. It is read by `fetch` and not by
// `EventSource`, because only `fetch` can continue after the last event and sees the status of a refusal.

import { signal } from '@preact/signals';
import { signedOut } from './api';
import { SseReader, type Message } from './sse';

/** State of the connection. In `polling` the pages ask again every few seconds. */
export type FeedState = 'off' | 'connecting' | 'live' | 'polling';

export interface FeedEvent {
  name: string;
  /** Unix milliseconds. */
  at: number;
  data: Readonly<Record<string, unknown>>;
}

/** Events of our own: everything must be read again. */
export const AGAIN = 'again';

/** Interval of reads while the feed cannot be reached. */
const POLL_MS = 5_000;
/** Wait before the next try to connect: doubled from the minimum to the maximum. */
const RETRY_MS_MIN = 1_000;
const RETRY_MS_MAX = 30_000;
/** A first connection that comes later is late. */
const PROMPT_MS = 1_000;
/** A connection that lasted longer was no failure. */
const STEADY_MS = 30_000;
/** Failures in a row after which the pages poll. */
const FAILURES_MAX = 2;
/** The service sends a comment every 15 s; a connection without any byte for this time is dead. */
const SILENCE_MS = 40_000;

export const feedState = signal<FeedState>('off');

const listeners = new Set<(event: FeedEvent) => void>();
let running: AbortController | null = null;
let lastId: string | null = null;
let wanted = false;
let openedAt = 0;

/** Calls `listener` for each event; returns the function that ends that. */
export function listen(listener: (event: FeedEvent) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function emit(event: FeedEvent): void {
  for (const listener of [...listeners]) {
    listener(event);
  }
}

/** Opens the feed after a login. */
export function open(): void {
  wanted = true;
  openedAt = Date.now();
  document.addEventListener('visibilitychange', adjust);
  addEventListener('online', retry);
  addEventListener('offline', restart);
  adjust();
}

/** Closes the feed and forgets its position, after a logout. */
export function close(): void {
  wanted = false;
  lastId = null;
  document.removeEventListener('visibilitychange', adjust);
  removeEventListener('online', retry);
  removeEventListener('offline', restart);
  adjust();
}

function adjust(): void {
  const isWanted = wanted && !document.hidden;
  if (isWanted && !running) {
    running = new AbortController();
    void run(running.signal);
  } else if (!isWanted && running) {
    running.abort();
    running = null;
    feedState.value = 'off';
  }
}

/** Connects at once instead of after the wait. */
function retry(): void {
  if (feedState.peek() !== 'live') {
    restart();
  }
}

/** Connects again. A connection without a network would look alive until its silence is noticed. */
function restart(): void {
  if (running) {
    running.abort();
    running = null;
    adjust();
  }
}

async function run(signal: AbortSignal): Promise<void> {
  feedState.value = 'connecting';
  let failures = 0;
  const polling = setInterval(() => feedState.peek() === 'polling' && emitAgain(), POLL_MS);
  signal.addEventListener('abort', () => clearInterval(polling));
  while (!signal.aborted) {
    const connectedAt = Date.now();
    const refusedFor = await follow(signal);
    if (signal.aborted) {
      return;
    }
    if (refusedFor > 0) {
      feedState.value = 'connecting';
      await wait(refusedFor, signal);
      continue;
    }
    failures = Date.now() - connectedAt > STEADY_MS ? 1 : failures + 1;
    feedState.value = failures >= FAILURES_MAX ? 'polling' : 'connecting';
    // At random, so that the tabs of all people do not come back together.
    await wait(Math.min(RETRY_MS_MIN * 2 ** (failures - 1), RETRY_MS_MAX) * (0.5 + Math.random()), signal);
  }
}

function emitAgain(): void {
  emit({ name: AGAIN, at: Date.now(), data: {} });
}

/** Reads events until the connection ends. Gives the time after which the service takes the next connection; 0 if it named none. */
async function follow(signal: AbortSignal): Promise<number> {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const response = await fetch('/api/events', {
      headers: lastId === null ? {} : { 'Last-Event-ID': lastId },
      signal: AbortSignal.any([signal, silence.signal]),
      cache: 'no-store',
    });
    if (response.status === 401) {
      signedOut();
    }
    if (!response.ok || !response.body) {
      return Number(response.headers.get('Retry-After')) * 1_000;
    }
    const text = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const reader = new SseReader();
    for (let part = await text.read(); !part.done; part = await text.read()) {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      for (const message of reader.push(part.value)) {
        take(message);
      }
    }
  } catch {
    // The connection was cut: the caller connects again.
  } finally {
    clearTimeout(timer);
  }
  return 0;
}

function take(message: Message): void {
  // Pages that read before a late connection may have missed a change.
  const isFirst = lastId === null && Date.now() - openedAt < PROMPT_MS;
  lastId = message.id ?? lastId;
  feedState.value = 'live';
  if (message.name === 'reset' || (message.name === 'ready' && !isFirst)) {
    emitAgain();
  } else if (message.name !== 'ready') {
    const event = eventOf(message);
    if (event) {
      emit(event);
    }
  }
}

/** The event in a message; `null` if it cannot be read. */
export function eventOf({ name, data }: Message): FeedEvent | null {
  try {
    const parsed: unknown = JSON.parse(data);
    if (typeof parsed !== 'object' || parsed === null) {
      return null;
    }
    const fields = parsed as Record<string, unknown>;
    return { name, at: typeof fields['at'] === 'number' ? fields['at'] : Date.now(), data: fields };
  } catch {
    return null;
  }
}

function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
