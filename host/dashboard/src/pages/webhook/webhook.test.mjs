// Tests of the webhook pages without a browser.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { load } from '../../testing.mjs';

test('a long list shows the rows near the screen', async () => {
  const { visible } = await load('pages/webhook/visible');
  assert.deepEqual(visible(-400, 800, 50, 100_000), { first: 0, last: 16 });
  assert.deepEqual(visible(5_000, 800, 50, 100_000), { first: 92, last: 124 });
  assert.deepEqual(visible(4_999_500, 800, 50, 100_000), { first: 99_982, last: 100_000 });
  assert.deepEqual(visible(0, 800, 50, 0), { first: 0, last: 0 });
  assert.deepEqual(visible(9_000, 800, 50, 10), { first: 10, last: 10 });
});

const BODY = '{"type":"test.ping","data":{"label":"Grüße"}}';

/** The headers of a delivery, with the signature of an older secret first. */
function headersOf(key, at) {
  const time = String(Math.floor(at / 1000));
  const sign = (key) => `v1,${createHmac('sha256', key).update(`evt_1.${time}.${BODY}`).digest('base64')}`;
  return { 'webhook-id': 'evt_1', 'webhook-timestamp': time, 'webhook-signature': `${sign('old')} ${sign(key)}` };
}

const KEY = Buffer.from('a key of twenty-four bytes and more');
/** Secret, headers, and whether the code must accept them. */
const DELIVERIES = [
  [`whsec_${KEY.toString('base64')}`, headersOf(KEY, Date.now()), true],
  ['sixteen characters', headersOf('sixteen characters', Date.now()), true],
  ['another secret of mine', headersOf('sixteen characters', Date.now()), false],
  ['sixteen characters', headersOf('sixteen characters', Date.now() - 301_000), false],
];

test('the code for Node.js verifies deliveries', async () => {
  const { SNIPPETS } = await load('pages/webhook/snippets');
  const { isFromSatcast } = await import(`data:text/javascript,${encodeURIComponent(SNIPPETS.node.code)}`);
  for (const [secret, headers, isGood] of DELIVERIES) {
    assert.equal(isFromSatcast(secret, headers, Buffer.from(BODY)), isGood);
  }
  const [secret, headers] = DELIVERIES[0];
  assert.equal(isFromSatcast(secret, headers, Buffer.from(`${BODY} `)), false);
  assert.equal(isFromSatcast(secret, {}, Buffer.from(BODY)), false);
});

test('the code for Python verifies deliveries', async () => {
  const { SNIPPETS } = await load('pages/webhook/snippets');
  const check = `${SNIPPETS.python.code}
import json, sys
body, deliveries = json.loads(sys.argv[1])
print(json.dumps([is_from_satcast(secret, headers, body.encode()) for secret, headers, _ in deliveries]))`;
  const found = execFileSync('python3', ['-c', check, JSON.stringify([BODY, DELIVERIES])], { encoding: 'utf8' });
  assert.deepEqual(JSON.parse(found), DELIVERIES.map(([, , isGood]) => isGood));
});
