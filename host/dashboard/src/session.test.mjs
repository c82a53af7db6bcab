// Tests of the login session, with a service of the test.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { load } from './testing.mjs';

const until = async (holds) => {
  for (let tries = 0; !holds(); tries += 1) {
    assert.ok(tries < 500, 'the state did not come within 10 s');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};

const json = (status, body) => new Response(JSON.stringify(body), { status, headers: { 'Content-Type': 'application/json' } });

test('the menu keeps the last known account while the service refuses to answer', async () => {
  const stored = new Map([['satcast.account', '{"name":"anna","operator":true}']]);
  const localStorage = {
    getItem: (key) => stored.get(key) ?? null,
    setItem: (key, value) => stored.set(key, value),
    removeItem: (key) => stored.delete(key),
  };
  Object.defineProperty(globalThis, 'localStorage', { value: localStorage, configurable: true });
  globalThis.addEventListener = () => undefined;
  globalThis.removeEventListener = () => undefined;
  // A hidden page has no event feed.
  globalThis.document = { hidden: true, addEventListener: () => undefined, removeEventListener: () => undefined };
  const limited = { error: 'Rate limit exceeded', code: 'rate_limited', requestId: 'a', retryAfter: 1 };
  const answers = [json(429, limited), json(200, { accountId: 1, name: 'anna', operator: false })];
  globalThis.fetch = async () => answers.shift();
  const { account, check, sessionState } = await load('session');
  await check();
  assert.deepEqual([sessionState.value, account.value], ['in', { name: 'anna', operator: true }]);
  await until(() => account.value?.operator === false);
  assert.deepEqual(JSON.parse(stored.get('satcast.account')), { name: 'anna', operator: false });
});
