// Tests of the connection of the event feed, with a service of the test.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { load } from './testing.mjs';

/** A page with a feed: what it asked the service, and the answers that it gets in turn. */
async function page(answers) {
  const asked = [];
  const handlers = {};
  globalThis.window = globalThis;
  globalThis.addEventListener = () => undefined;
  globalThis.removeEventListener = () => undefined;
  globalThis.document = {
    hidden: false,
    addEventListener: (name, handler) => (handlers[name] = handler),
    removeEventListener: () => undefined,
  };
  globalThis.fetch = async (address, { headers, signal }) => {
    asked.push(headers);
    const next = answers.shift();
    if (next === undefined) {
      throw new TypeError('no connection');
    }
    if (next.refusedFor) {
      return new Response('', { status: 429, headers: { 'Retry-After': next.refusedFor } });
    }
    return new Response(
      new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode(next.text));
          signal.addEventListener('abort', () => controller.error(new Error('aborted')));
          if (next.ends) {
            controller.close();
          }
        },
      }),
    );
  };
  const feed = await load('feed');
  const names = [];
  feed.listen(({ name }) => names.push(name));
  return { feed, asked, names, handlers };
}

const until = async (holds) => {
  for (let tries = 0; !holds(); tries += 1) {
    assert.ok(tries < 500, 'the state did not come within 10 s');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};

const READY = 'id: a-1\nevent: ready\ndata: {"at":1}\n\n';

test('the feed continues after the last event, and everything is read again after a reset', async () => {
  const { feed, asked, names } = await page([
    { text: `${READY}id: a-2\nevent: key.created\ndata: {"at":2}\n\n`, ends: true },
    { text: 'id: b-1\nevent: reset\ndata: {"at":3}\n\n', ends: false },
  ]);
  feed.open();
  await until(() => names.length === 2);
  feed.close();
  assert.deepEqual(names, ['key.created', feed.AGAIN]);
  assert.deepEqual(asked, [{}, { 'Last-Event-ID': 'a-2' }]);
  assert.equal(feed.feedState.value, 'off');
});

test('a hidden page has no connection, and polls when the service cannot be reached', async () => {
  const { feed, asked, names, handlers } = await page([{ text: READY, ends: false }]);
  feed.open();
  await until(() => feed.feedState.value === 'live');
  document.hidden = true;
  handlers.visibilitychange();
  assert.equal(feed.feedState.value, 'off');
  document.hidden = false;
  handlers.visibilitychange();
  await until(() => feed.feedState.value === 'polling');
  await until(() => names.includes(feed.AGAIN));
  feed.close();
  assert.ok(asked.length >= 3);
});

test('after a refusal the feed waits as long as the service says, and the pages do not poll', async () => {
  const refused = { refusedFor: '1' };
  const { feed, names } = await page([refused, refused, { text: READY, ends: false }]);
  const states = [];
  feed.feedState.subscribe((state) => states.push(state));
  const from = Date.now();
  feed.open();
  await until(() => feed.feedState.value === 'live');
  feed.close();
  assert.ok(Date.now() - from >= 1_990);
  assert.ok(!states.includes('polling'));
  assert.deepEqual(names, [feed.AGAIN]);
});
