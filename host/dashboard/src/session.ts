// The login session of this browser.

import { signal } from '@preact/signals';
import { answer, api, asFailure, onSignedOut, once, type Schema } from './api';
import * as feed from './feed';
import { forget } from './resource';

/** `unknown` until the first answer of the service. */
export type SessionState = 'unknown' | 'in' | 'out';

/** The account of the session. It decides only what the menu shows: the service decides about rights. */
export type Account = Pick<Schema<'OwnAccount'>, 'name' | 'operator'>;

/** The last known account, for loads of the page to which the service does not answer. */
const STORED = 'satcast.account';
/** Wait before the service is asked again. */
const RETRY_MS = 10_000;

export const sessionState = signal<SessionState>('unknown');
export const account = signal<Account | null>(null);

/** Finds out whether this browser has a session. Without an answer the pages open with the menu of the last known account. */
export async function check(): Promise<void> {
  onSignedOut(leave);
  account.value = JSON.parse(localStorage.getItem(STORED) ?? 'null') as Account | null;
  // The cookie is of the browser: another tab may have changed it while this one was hidden.
  document.addEventListener('visibilitychange', () => !document.hidden && sessionState.peek() === 'in' && void identify());
  await identify();
}

async function identify(): Promise<void> {
  try {
    const owner = await answer(api.GET('/api/auth/me'));
    const isOther = sessionState.peek() === 'in' && account.peek() !== null && account.peek()?.name !== owner.name;
    welcome(owner);
    if (isOther) {
      location.reload();
    }
  } catch (error) {
    const { status, code, retryAt } = asFailure(error);
    if (status === 401 || code === 'account_disabled') {
      leave();
      return;
    }
    enter();
    const wait = retryAt === null ? RETRY_MS : retryAt - Date.now();
    setTimeout(() => sessionState.peek() === 'in' && void identify(), wait);
  }
}

function enter(): void {
  sessionState.value = 'in';
  feed.open();
}

/** Begins a session in place of another one. */
function begin(owner: Account): void {
  feed.close();
  forget();
  welcome(owner);
}

function leave(): void {
  sessionState.value = 'out';
  feed.close();
  forget();
  account.value = null;
  localStorage.removeItem(STORED);
}

function welcome({ name, operator }: Account): void {
  account.value = { name, operator };
  localStorage.setItem(STORED, JSON.stringify(account.value));
  enter();
}

export async function logIn(name: string, password: string): Promise<void> {
  begin(await answer(api.POST('/api/auth/login', { body: { name, password } })));
}

/** Uses a link: makes its account with `name`, or sets the password of the account that it belongs to. Also logs in. */
export async function setUp(name: string | null, password: string, token: string): Promise<void> {
  const body = { password, ...(name === null ? {} : { name }), ...(token ? { token } : {}) };
  begin(await answer(api.POST('/api/auth/setup', { body })));
}

export async function logOut(key: string): Promise<void> {
  await answer(api.POST('/api/auth/logout', { params: once(key) }));
  leave();
}
