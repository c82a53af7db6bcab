// The service takes no login session for webhooks: a stolen session must not send events elsewhere. The pages make a key of
// their own. It is kept in memory only, and ends with the tab, at the latest with the login session.

import { effect } from '@preact/signals';
import { answer, api, asFailure, listed, once, onceKey, type Schema } from '../../api';
import { sessionState } from '../../session';

/** Label of the pages' own keys in the list of keys. */
export const OWN_LABEL = 'Dashboard';

/** Own keys without use for this time are of tabs that crashed, and are revoked. A tab that still needs one makes another. */
const UNUSED_MS = 86_400_000;
/** Most keys that are revoked at once, far below the limit of writes. */
const REVOKED_MAX = 10;

export type KeyHeader = { 'X-API-Key': string };

interface OwnKey {
  id: number;
  header: KeyHeader;
}

let held: Promise<OwnKey> | null = null;

effect(() => {
  if (sessionState.value === 'out') {
    held = null;
  }
});

addEventListener('pagehide', () => {
  void held?.then(({ id }) => revoke(id, { keepalive: true })).catch(asFailure);
  held = null;
});

/** Whether a key of the list was made by the pages for themselves. */
export function isOwn({ endsWithSession, label }: Schema<'ApiKey'>): boolean {
  return endsWithSession && label === OWN_LABEL;
}

/** Calls the service with the key; once more with a new one if the key has ended. */
export async function withKey<Result>(call: (headers: KeyHeader) => Promise<Result>): Promise<Result> {
  const used = hold();
  const { header } = await used;
  try {
    return await call(header);
  } catch (error) {
    if (asFailure(error).status !== 401) {
      throw error;
    }
    drop(used);
    return call((await hold()).header);
  }
}

/** The key, made at its first use. A failure is not kept. */
function hold(): Promise<OwnKey> {
  if (held === null) {
    const creating = create();
    held = creating;
    creating.catch(() => drop(creating));
  }
  return held;
}

/** Forgets the key, unless there is a newer one. */
function drop(used: Promise<OwnKey>): void {
  if (held === used) {
    held = null;
  }
}

async function create(): Promise<OwnKey> {
  const body: Schema<'NewApiKey'> = { type: 'permanent', label: OWN_LABEL, scopes: ['webhooks'], endsWithSession: true };
  const { id, key } = await answer(api.POST('/api/keys', { body, params: once(onceKey()) }));
  // The page works without it; the next tab tries again.
  revokeUnused().catch(asFailure);
  return { id, header: { 'X-API-Key': key } };
}

async function revokeUnused(): Promise<void> {
  const { items } = await listed(api.GET('/api/keys'));
  const isUnused = ({ lastUsedAt, createdAt }: Schema<'ApiKey'>): boolean => Date.now() - (lastUsedAt ?? createdAt) > UNUSED_MS;
  for (const { id } of items.filter((key) => isOwn(key) && isUnused(key)).slice(0, REVOKED_MAX)) {
    await revoke(id);
  }
}

async function revoke(id: number, options: { keepalive?: boolean } = {}): Promise<void> {
  await answer(api.DELETE('/api/keys/{id}', { ...options, params: { path: { id } } }));
}
