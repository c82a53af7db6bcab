// Tests of figures and files about money, without a browser.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { load } from './testing.mjs';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

test('ranges are those of the API, in UTC', async () => {
  const { rangeOf } = await load('ranges');
  // A Thursday.
  const now = Date.UTC(2026, 10, 26, 9, 30);
  const cases = [
    ['hour', Date.UTC(2026, 10, 26, 9), Date.UTC(2026, 10, 26, 10)],
    ['day', Date.UTC(2026, 10, 26), Date.UTC(2026, 10, 27)],
    ['week', Date.UTC(2026, 10, 23), Date.UTC(2026, 10, 30)],
    ['month', Date.UTC(2026, 10), Date.UTC(2026, 11)],
    ['year', Date.UTC(2026), Date.UTC(2027)],
    ['all', Date.UTC(2025, 11), Date.UTC(2026, 11)],
  ];
  for (const [filter, start, end] of cases) {
    assert.deepEqual(rangeOf(filter, now), { start, end }, filter);
  }
  // A Sunday belongs to the week that began on Monday before it.
  assert.equal(rangeOf('week', Date.UTC(2026, 10, 29, 23)).start, Date.UTC(2026, 10, 23));
});

test('two dates are a range that includes both', async () => {
  const { rangeBetween } = await load('ranges');
  assert.deepEqual(rangeBetween('2026-11-26', '2026-11-26'), { start: Date.UTC(2026, 10, 26), end: Date.UTC(2026, 10, 27) });
  assert.equal(rangeBetween('2026-11-27', '2026-11-25'), null);
  assert.equal(rangeBetween('', '2026-11-25'), null);
});

test('bars cover a range without gaps', async () => {
  const { barsOf, BARS_MAX, rangeOf, unitOf } = await load('ranges');
  const now = Date.UTC(2026, 10, 26, 9, 30);
  const counts = { hour: 1, day: 12, week: 7, month: 10, year: 12, all: 12 };
  for (const [filter, count] of Object.entries(counts)) {
    const range = rangeOf(filter, now);
    const bars = barsOf(range);
    assert.equal(bars.length, count, filter);
    assert.equal(bars[0].start, range.start);
    assert.equal(bars.at(-1).end, range.end);
    assert.ok(bars.every(({ start }, index) => index === 0 || start === bars[index - 1].end));
  }
  const long = { start: Date.UTC(2000), end: Date.UTC(2026) };
  assert.equal(unitOf(long), 'month');
  assert.equal(barsOf(long).length, BARS_MAX);
  assert.equal(barsOf(long)[0].start, long.start);
  assert.equal(barsOf(long).at(-1).end, long.end);
  assert.equal(unitOf({ start: 0, end: 2 * DAY }), 'hour');
  assert.equal(unitOf({ start: 0, end: 2 * DAY + HOUR }), 'day');
});

test('charges of a session are summed by destination and kind', async () => {
  const { addUp } = await load('ledger');
  const entry = (sessionId, destinationId, kind, amountMsat) => ({ sessionId, destinationId, kind, amountMsat });
  const entries = [
    entry('a', 1, 'minute', -2_000),
    entry('a', 2, 'minute', -2_000),
    entry('a', 1, 'minute', -2_000),
    entry('a', 1, 'overage', -172),
    entry('b', 1, 'minute', -2_000),
    entry(null, null, 'topup', 1_000_000),
  ];
  assert.deepEqual(addUp(entries, 'a'), [
    { destinationId: 1, kind: 'minute', msat: 4_000 },
    { destinationId: 2, kind: 'minute', msat: 2_000 },
    { destinationId: 1, kind: 'overage', msat: 172 },
  ]);
  assert.deepEqual(addUp(entries, 'c'), []);
});

test('text in a CSV file is quoted and is no formula', async () => {
  const { csvOf } = await load('csv');
  const made = csvOf(
    ['id', 'label'],
    [
      [1, 'plain'],
      [2, 'a "b", c'],
      [3, '=1+1'],
      [5, 'x;=1'],
      [-4, null],
    ],
  );
  assert.equal(made, 'id,label\r\n1,plain\r\n2,"a ""b"", c"\r\n3,\'=1+1\r\n5,"x;\'=1"\r\n-4,\r\n');
});
