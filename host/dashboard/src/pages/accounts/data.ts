// Accounts, for operators.

import { answer, api, listed, once, type Listed, type Schema } from '../../api';
import { usePages, type Pages } from '../../resource';

export type Account = Schema<'Account'>;
export type AccountChanged = Schema<'AccountChanged'>;

/** Rows of one page. */
const ROWS = 100;
/** Changes of other accounts are not in the operator's feed. */
const CHANGES_MS = 15_000;

/** All accounts, newest first. */
export function useAccounts(): Pages<Account> {
  const load = (cursor: string | undefined): Promise<Listed<Account>> =>
    listed(api.GET('/api/accounts', { params: { query: { limit: ROWS, ...(cursor ? { cursor } : {}) } } }));
  return usePages('accounts', load, { every: CHANGES_MS });
}

export function create(body: Schema<'NewAccount'>, key: string): Promise<AccountChanged> {
  return answer(api.POST('/api/accounts', { body, params: once(key) }));
}

/** Credit is added once, even if the request is repeated. */
export function change(id: number, body: Schema<'AccountChange'>, key: string): Promise<AccountChanged> {
  return answer(api.PATCH('/api/accounts/{id}', { body, params: { path: { id }, ...once(key) } }));
}
