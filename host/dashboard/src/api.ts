// The client of the API, with types from the API document. The cookie of the login session goes along by itself.

import { signal } from '@preact/signals';
import createClient, { type Middleware } from 'openapi-fetch';
import type { components, paths } from './gen/api';

/** A schema of the API document, by name. */
export type Schema<Name extends keyof components['schemas']> = components['schemas'][Name];

/** Wait for an answer. Logins can take 30 s. */
const ANSWER_MS = 40_000;
/** The same while a file is sent; the service waits for 120 s. */
const UPLOAD_MS = 130_000;

/** Codes of failures that have no answer of the service. */
export type LocalCode = 'network' | 'timeout' | 'unreadable';

/** A request that failed. */
export class Failure extends Error {
  constructor(
    /** Method and path, such as `GET /api/streams`. */
    readonly request: string,
    /** HTTP status; 0 without an answer. */
    readonly status: number,
    readonly code: string,
    text: string,
    readonly requestId: string | null = null,
    /** When the next try can succeed, Unix milliseconds; `null` if unknown. */
    readonly retryAt: number | null = null,
  ) {
    super(text);
  }

  /** Whether no answer came. */
  get isUnanswered(): boolean {
    return this.code === 'network' || this.code === 'timeout';
  }
}

/** Whether the service answered the last request. */
export const reachable = signal(true);

/** Why the service ended the login session: the account is disabled. */
export const endedBy = signal<Failure | null>(null);

const listeners = new Set<() => void>();

/** Calls `listener` when the service refuses the login session. */
export function onSignedOut(listener: () => void): void {
  listeners.add(listener);
}

/** Called for every 401 of a request that needs a session. */
export function signedOut(): void {
  for (const listener of listeners) {
    listener();
  }
}

// A write by cookie needs this header: pages of other origins cannot set it.
const headers = { 'X-Requested-With': 'satcast-dashboard' };

/** Operations whose 401 is about a password. */
const ENTRANCES = ['/api/auth/login', '/api/auth/setup', '/api/auth/password'];

/** Method and path of the request of a response. */
const requests = new WeakMap<Response, string>();

function nameOf({ method, url }: Request): string {
  return `${method} ${new URL(url).pathname}`;
}

const watch: Middleware = {
  async onRequest({ request }) {
    const limit = request.headers.get('Content-Type')?.startsWith('video/') ? UPLOAD_MS : ANSWER_MS;
    return new Request(request, { signal: AbortSignal.any([request.signal, AbortSignal.timeout(limit)]) });
  },
  onResponse({ response, schemaPath, request }) {
    reachable.value = true;
    requests.set(response, nameOf(request));
    if (response.status === 401 && !ENTRANCES.includes(schemaPath) && !request.headers.has('X-API-Key')) {
      signedOut();
    }
  },
  onError({ request, error }) {
    // The page itself cuts reads that it does not need any more.
    reachable.value &&= error instanceof DOMException && error.name === 'AbortError';
    const code: LocalCode = error instanceof DOMException && error.name === 'TimeoutError' ? 'timeout' : 'network';
    return new Failure(nameOf(request), 0, code, code);
  },
};

/** The client. Use it through [`answer`]. */
export const api = createClient<paths>({ baseUrl: location.origin, headers, cache: 'no-store' });
api.use(watch);

interface Outcome<Data> {
  data?: Data;
  error?: unknown;
  response: Response;
}

/** The data of a response.
 *
 * Fails with a `Failure`. */
export async function answer<Data>(pending: Promise<Outcome<Data>>): Promise<NonNullable<Data>> {
  return (await outcome(pending)).data;
}

/** A page of a list. */
export interface Listed<Item> {
  items: Item[];
  /** Cursor of the next page; `null` at the end. */
  next: string | null;
}

/** One page of a list. */
export async function listed<Item>(pending: Promise<Outcome<Item[]>>): Promise<Listed<Item>> {
  const { data, response } = await outcome(pending);
  return { items: data, next: nextCursor(response.headers.get('Link')) };
}

/** Cursor of the next page, from the header `Link`. */
export function nextCursor(link: string | null): string | null {
  const address = /<([^>]*)>\s*;\s*rel="?next"?/.exec(link ?? '')?.[1];
  return address === undefined ? null : new URL(address, 'http://relative.invalid').searchParams.get('cursor');
}

async function outcome<Data>(pending: Promise<Outcome<Data>>): Promise<{ data: NonNullable<Data>; response: Response }> {
  let arrived: Outcome<Data>;
  try {
    arrived = await pending;
  } catch (error) {
    if (error instanceof Failure) {
      throw error;
    }
    // JSON that ends early, or a body that was cut.
    const code: LocalCode = error instanceof SyntaxError ? 'unreadable' : 'network';
    throw new Failure('', 0, code, code);
  }
  const { data, error, response } = arrived;
  if (data !== undefined && data !== null) {
    return { data, response };
  }
  throw failureOf(error, response);
}

/** The failure in a caught value. A fault of ours is thrown on, so that it is seen. */
export function asFailure(error: unknown): Failure {
  if (error instanceof Failure) {
    return error;
  }
  throw error;
}

function failureOf(error: unknown, response: Response): Failure {
  const body = (typeof error === 'object' && error !== null ? error : {}) as Partial<Schema<'Error'>>;
  const { error: text = `HTTP ${response.status}`, code = 'unreadable', requestId = null, retryAfter } = body;
  const retryAt = retryAfter === undefined ? null : Date.now() + retryAfter * 1_000;
  const failure = new Failure(requests.get(response) ?? '', response.status, code, text, requestId, retryAt);
  if (code === 'account_disabled') {
    endedBy.value = failure;
    signedOut();
  }
  return failure;
}

/** A value for the header `Idempotency-Key`: the service does the same request only once. */
export function onceKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Header parameter for a POST that is done at most once. */
export function once(key: string): { header: { 'Idempotency-Key': string } } {
  return { header: { 'Idempotency-Key': key } };
}
