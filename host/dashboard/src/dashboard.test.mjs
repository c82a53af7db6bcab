// Tests of the dashboard's logic without a browser: `node --test`.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { load } from './testing.mjs';

test('a path is matched by its pattern', async () => {
  const { match } = await load('router');
  assert.deepEqual(match('/', '/'), {});
  assert.deepEqual(match('/streams/:id', '/streams/7'), { id: '7' });
  assert.deepEqual(match('/streams/:id', '/streams/7/'), { id: '7' });
  assert.deepEqual(match('/a/:name', '/a/b%2Fc'), { name: 'b/c' });
  assert.equal(match('/streams/:id', '/streams'), null);
  assert.equal(match('/streams/:id', '/streams/abc'), null);
  assert.equal(match('/streams/:id', '/keys/7'), null);
  assert.equal(match('/a/:name', '/a/%zz'), null);
});

test('numbers are written with units', async () => {
  const format = await load('format');
  const plain = (text) => text.replaceAll('\u202f', '_').replaceAll('\u00a0', ' ');
  const cases = [
    [format.sats(0), '0 sats'],
    [format.sats(1), '1 sat'],
    [format.sats(1234567), '1_234_567 sats'],
    [format.whole(-1234), '−1_234'],
    [format.millisats(12345), '12.345 sats'],
    [format.millisats(-500), '−0.5 sats'],
    [format.millisats(-2000), '−2 sats'],
    [format.bytes(1.5 * format.GB), '1.5 GB'],
    [format.bytes(999), '999 B'],
    [format.bytes(1_500_000), '1.5 MB'],
    [format.bitrate(6_000_000), '6.0 Mbit/s'],
    [format.bitrate(128_000), '128 kbit/s'],
  ];
  for (const [made, wanted] of cases) {
    assert.equal(plain(made), wanted);
  }
});

test('times are written short', async () => {
  const { clock, wait, utc } = await load('format');
  assert.equal(clock(-5), '0:00');
  assert.equal(clock(125_000), '2:05');
  assert.equal(clock(3_725_000), '1:02:05');
  assert.equal(wait(7_200).replace('\u00a0', ' '), '8 s');
  assert.equal(wait(121_000).replace('\u00a0', ' '), '3 min');
  assert.equal(wait(3 * 3_600_000).replace('\u00a0', ' '), '3 h');
  assert.equal(utc(Date.UTC(2026, 10, 26, 9, 4, 5)), '2026-11-26 09:04:05 UTC');
});

test('moments of a recording are written and read', async () => {
  const { moment, momentOf } = await load('format');
  for (const [ms, text] of [
    [0, '0:00.0'],
    [65_379, '1:05.3'],
    [3_725_900, '1:02:05.9'],
  ]) {
    assert.equal(moment(ms), text);
    assert.equal(momentOf(text), Math.floor(ms / 100) * 100);
  }
  assert.equal(momentOf(' 90 '), 90_000);
  assert.equal(momentOf('2:05,25'), 125_250);
  for (const other of ['', '-1', '1:', ':5', '1:2:3:4', 'now', '1e3']) {
    assert.equal(momentOf(other), null, other);
  }
});

test('events are read across the borders of parts', async () => {
  const { SseReader } = await load('sse');
  const reader = new SseReader();
  assert.deepEqual(reader.push('retry: 3000\nid: a-1\nevent: ready\nda'), []);
  assert.deepEqual(reader.push('ta: {"at":1}\n\n:\n\nid: a-2\nevent: stream.started\ndata: {}\n'), [
    { id: 'a-1', name: 'ready', data: '{"at":1}' },
  ]);
  assert.deepEqual(reader.push('\n'), [{ id: 'a-2', name: 'stream.started', data: '{}' }]);
});

test('an event has its time and its fields', async () => {
  const { eventOf } = await load('feed');
  assert.deepEqual(eventOf({ id: null, name: 'x', data: '{"at":5,"streamId":1}' }), {
    name: 'x',
    at: 5,
    data: { at: 5, streamId: 1 },
  });
  assert.equal(eventOf({ id: null, name: 'x', data: 'no' }), null);
  assert.equal(eventOf({ id: null, name: 'x', data: '1' }), null);
});

test('events of sessions change streams', async () => {
  const { applyToStreams } = await load('live');
  const streams = [1, 2].map((id) => ({ id, state: 'idle', status: 'idle', lastEndReason: null }));
  const live = applyToStreams(streams, { name: 'stream.started', at: 1, data: { streamId: 2 } });
  assert.deepEqual(
    live.map(({ state, status }) => [state, status]),
    [
      ['idle', 'idle'],
      ['live', 'active'],
    ],
  );
  const ended = applyToStreams(live, { name: 'stream.ended', at: 2, data: { streamId: 2, reason: 'max_sats' } });
  assert.deepEqual(ended[1], { id: 2, state: 'idle', status: 'idle', lastEndReason: 'max_sats' });
  assert.deepEqual(applyToStreams(live, { name: 'stream.health', at: 2, data: { streamId: 2 } }), live);
});

test('events of destinations change the details of their stream', async () => {
  const { applyToDetail } = await load('live');
  const detail = {
    id: 1,
    state: 'idle',
    status: 'idle',
    lastEndReason: null,
    destinations: [
      { id: 5, state: 'stopped', bitrate: 9 },
      { id: 6, state: 'stopped' },
    ],
  };
  const data = { streamId: 1, destinationId: 5, state: 'retrying', error: 'refused', nextRetryAt: 9 };
  const { destinations } = applyToDetail(detail, { name: 'destination.state', at: 1, data });
  assert.deepEqual(destinations, [
    { id: 5, state: 'retrying', bitrate: 9, error: 'refused', nextRetryAt: 9 },
    { id: 6, state: 'stopped' },
  ]);
  assert.equal(applyToDetail(detail, { name: 'stream.started', at: 7, data: { streamId: 1 } }).startedAt, 7);
});

const SCHEMA = {
  type: 'object',
  required: ['key', 'store'],
  $defs: {
    Store: { type: 'object', properties: { bucket: { type: 'string' }, keep: { type: ['integer', 'null'], minimum: 1 } } },
  },
  properties: {
    server: { type: ['string', 'null'], default: 'rtmp://a' },
    key: { type: 'string', minLength: 2, 'x-secret': true },
    mode: { enum: ['fast', 'safe'], default: 'safe' },
    lowLatency: { type: 'boolean', default: false },
    sites: { type: 'array', items: { type: 'string' } },
    store: { $ref: '#/$defs/Store' },
  },
  oneOf: [
    {
      title: 'Password',
      properties: { login: { const: 'password' }, password: { type: 'string', writeOnly: true } },
      required: ['login', 'password'],
    },
    { title: 'Token', properties: { login: { const: 'token' }, token: { type: 'string' } }, required: ['login', 'token'] },
  ],
};

test('a form is made from a schema', async () => {
  const { fieldsOf } = await load('schema');
  const fields = fieldsOf(SCHEMA);
  assert.deepEqual(
    fields.map(({ path, kind, required }) => [path, kind, required]),
    [
      ['key', 'secret', true],
      ['store', 'group', true],
      ['server', 'text', false],
      ['mode', 'choice', false],
      ['lowLatency', 'boolean', false],
      ['sites', 'list', false],
      ['*', 'variants', true],
    ],
  );
  assert.deepEqual(
    fields[1].fields.map(({ path }) => path),
    ['store.bucket', 'store.keep'],
  );
  assert.deepEqual(
    fields[6].variants.map(({ title }) => title),
    ['Password', 'Token'],
  );
  assert.deepEqual(
    fields[6].variants[0].fields.map(({ path, kind }) => [path, kind]),
    [['password', 'secret']],
  );
});

test('a form begins with the fields that its schema puts first', async () => {
  const { fieldsOf } = await load('schema');
  const names = ['accessKey', 'bucket', 'endpoint', 'prefix'];
  const properties = Object.fromEntries(names.map((name) => [name, { type: ['string', 'null'] }]));
  const fields = fieldsOf({ type: 'object', properties, required: ['prefix'], 'x-order': ['bucket', 'endpoint'] });
  assert.deepEqual(
    fields.map(({ name, isMain }) => [name, isMain]),
    [
      ['bucket', true],
      ['endpoint', true],
      ['prefix', true],
      ['accessKey', false],
    ],
  );
});

test('destinations of one type are numbered from the oldest', async () => {
  const { namesOf } = await load('pages/stream/names');
  const types = [{ name: 'rtmp', title: 'RTMP server' }];
  const destinations = [
    { id: 9, type: 'rtmp' },
    { id: 5, type: 'other' },
    { id: 3, type: 'rtmp' },
  ];
  const names = new Map([
    [9, 'RTMP server 2'],
    [5, 'other'],
    [3, 'RTMP server 1'],
  ]);
  assert.deepEqual(namesOf(destinations, types), names);
});

test('the address for SRT has the key and half a second of latency', async () => {
  const { srtAddress } = await load('ingest');
  assert.equal(srtAddress('srt://a.example:8890', 'KEY'), 'srt://a.example:8890?streamid=KEY&latency=500000');
});

test('a refusal of an encoder is news for ten minutes', async () => {
  const { recentRefusal } = await load('ingest');
  const refusals = [{ at: 1_000_000 }, { at: 5_000 }];
  assert.equal(recentRefusal(refusals, 1_599_999), refusals[0]);
  assert.equal(recentRefusal(refusals, 1_600_000), undefined);
  assert.equal(recentRefusal([], 0), undefined);
});

test('an error of a field names it and the reason', async () => {
  const { refusalOf } = await load('refusal');
  const of = (message) => refusalOf({ message });
  assert.deepEqual(of('Field `config.url`: must begin with rtmp://'), { name: 'config.url', reason: 'must begin with rtmp://' });
  assert.deepEqual(of('Field `allowedAddresses[2]` must be a text'), { name: 'allowedAddresses', reason: 'must be a text' });
  assert.equal(of('The service is busy'), null);
  assert.equal(refusalOf(null), null);
});

test('values of a form become the configuration, and back', async () => {
  const { fieldsOf, initial, configOf } = await load('schema');
  const fields = fieldsOf(SCHEMA);
  const values = { ...initial(fields), key: ' abc ', 'store.keep': '3', sites: 'https://a\n\n https://b ', '*': '1', token: 't' };
  const config = { key: 'abc', store: { keep: 3 }, mode: 'safe', sites: ['https://a', 'https://b'], login: 'token', token: 't' };
  assert.deepEqual(configOf(fields, values), config);
  assert.deepEqual(configOf(fields, initial(fields, config)), config);
  assert.deepEqual(initial(fieldsOf({ type: 'object', properties: {} })), {});
});

test('problems of values are found before they are sent', async () => {
  const { fieldsOf, initial, problemsOf } = await load('schema');
  const fields = fieldsOf(SCHEMA);
  assert.deepEqual(problemsOf(fields, initial(fields)), { key: 'required', password: 'required' });
  const values = { ...initial(fields), key: 'a', 'store.keep': '0', password: 'p' };
  assert.deepEqual(problemsOf(fields, values), { key: 'short', 'store.keep': 'minimum' });
  assert.deepEqual(problemsOf(fields, { ...values, key: 'ab', 'store.keep': '1.5' }), { 'store.keep': 'whole' });
});

test('the cursor of the next page stands in the header Link', async () => {
  const { nextCursor } = await load('api');
  assert.equal(nextCursor('</api/keys?limit=2&cursor=a%3Db>; rel="next"'), 'a=b');
  assert.equal(nextCursor('</api/keys?cursor=a>; rel="prev"'), null);
  assert.equal(nextCursor(null), null);
});

test('languages have no empty text', async () => {
  const { en } = await load('messages/en');
  const { de } = await load('messages/de');
  const texts = (value) =>
    typeof value === 'object' ? Object.values(value).flatMap(texts) : typeof value === 'string' ? [value] : [];
  for (const language of [en, de]) {
    assert.deepEqual(
      texts(language).filter((text) => text.trim() === ''),
      [],
    );
  }
});

test('a recording and a clip have addresses for viewers', async () => {
  const { embedOf, playerOf, publicOf } = await load('pages/recordings/addresses');
  const [recording, clip] = ['index.m3u8', 'clip.mp4'].map((file) => `https://a.example/vod/7/${file}?token=T`);
  assert.equal(playerOf(recording), 'https://a.example/watch/vod/7?token=T');
  assert.equal(playerOf(clip), 'https://a.example/watch/vod/7?token=T');
  assert.equal(publicOf(clip, 'pk_KEY'), 'https://a.example/vod/7/clip.mp4?apiKey=pk_KEY');
  assert.equal(publicOf(playerOf(clip), 'pk_KEY'), 'https://a.example/watch/vod/7?apiKey=pk_KEY');
  assert.ok(embedOf(clip, 'pk_KEY', 'Clip').startsWith('<iframe src="https://a.example/watch/vod/7?apiKey=pk_KEY" '));
});
