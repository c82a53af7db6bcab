// The life of a stream, with the client that openapi-typescript generates from the committed document.
//
// Environment: BASE and KEY of the service, INGEST without stream key, RTMP of a server to forward to, SOURCE to publish.
// Prints one JSON line at the end; fails with a sentence.

import { spawn } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import createClient from 'openapi-fetch';
import type { components, paths } from './api.js';

type Schemas = components['schemas'];

function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

const baseUrl = variable('BASE');
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${variable('KEY')}` } });

/** The body of a success; otherwise throws the text of the error. */
function ok<T>(answer: { data?: T; error?: Schemas['Error']; response: Response }): T {
  if (answer.data === undefined) {
    throw new Error(`${answer.response.url} answers ${answer.response.status}: ${answer.error?.code} ${answer.error?.error}`);
  }
  return answer.data;
}

/** Repeats a request every half second, for up to half a minute, until it returns a value. */
async function until<T>(what: string, ask: () => Promise<T | undefined>): Promise<T> {
  for (let tries = 0; tries < 60; tries += 1) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    await pause(500);
  }
  throw new Error(`no ${what} after half a minute`);
}

const created = ok(await client.POST('/api/streams', { body: { label: 'typescript' } }));
if (!('limits' in created)) throw new Error('a stream without destinations has limits');
const { id, streamKey } = created;
const path = { id };

// Each type of destination has a configuration of its own.
const destinations: Schemas['NewDestination'][] = [
  { type: 'self-hosted', config: { dvrSeconds: 60 } },
  { type: 'rtmp', config: { url: variable('RTMP'), key: 'typescript' } },
];
const ids: number[] = [];
for (const body of destinations) {
  ids.push(ok(await client.POST('/api/streams/{id}/destinations', { params: { path }, body })).id);
}
const hosted = ids[0]!;
// @ts-expect-error An rtmp destination needs its url.
const wrong: Schemas['NewDestination'] = { type: 'rtmp', config: {} };
const refused = await client.POST('/api/streams/{id}/destinations', { params: { path }, body: wrong });
if (refused.response.status !== 422 || refused.error?.code !== 'config_refused') {
  throw new Error(`a destination without url: ${refused.response.status} ${refused.error?.code}`);
}

ok(await client.POST('/api/streams/{id}/limits', { params: { path }, body: { maxSats: 500, maxDurationMinutes: null } }));
const viewerWith = (key: string) => createClient<paths>({ baseUrl, headers: { 'X-API-Key': key } });
const first = ok(await client.POST('/api/keys', { body: { type: 'public', destinationId: hosted } }));
const second = ok(await client.POST('/api/keys/{id}/rotate', { params: { path: { id: first.id } } }));
const replaced = await viewerWith(first.key).GET('/api/public/stream/status');
if (replaced.response.status !== 401 || replaced.error?.code !== 'invalid_key') {
  throw new Error(`a key that was replaced: ${replaced.response.status} ${replaced.error?.code}`);
}
const viewer = viewerWith(second.key);
const offline = ok(await viewer.GET('/api/public/stream/status'));
if (offline.isLive || offline.hlsUrl !== null) throw new Error('live before anything was published');
const { pricing } = ok(await viewer.GET('/api/public/config'));

// The webhook gets no request, because it is never tested.
const wanted: Schemas['NewWebhook'] = {
  url: 'https://hooks.example.com/typescript', events: ['test.ping'], secret: 'auto', stream_key_id: id,
};
const webhook = ok(await client.POST('/api/webhooks', { body: wanted }));
if (!webhook.secret?.startsWith('whsec_')) throw new Error('no secret');
const listed = ok(await client.GET('/api/webhooks'));
if (listed.length !== 1 || listed[0]!.id !== webhook.id || !listed[0]!.hasSecret || listed[0]!.lastDelivery !== null) {
  throw new Error(JSON.stringify(listed));
}

const encoder = spawn(
  'ffmpeg',
  ['-nostdin', '-loglevel', 'error', '-re', '-stream_loop', '-1', '-i', variable('SOURCE'), '-c', 'copy', '-f', 'flv',
    `${variable('INGEST')}/${streamKey}`],
  { stdio: 'ignore' },
);
try {
  const hlsUrl = await until('playable stream', async () => {
    const status = ok(await viewer.GET('/api/public/stream/status'));
    return status.hlsReady && status.hlsUrl !== null ? status.hlsUrl : undefined;
  });
  const playlist = await (await fetch(hlsUrl)).text();
  if (!playlist.startsWith('#EXTM3U')) throw new Error(`no playlist: ${playlist.slice(0, 80)}`);

  const live = await until('destinations that are live', async () => {
    const stream = ok(await client.GET('/api/streams/{id}', { params: { path } }));
    return stream.destinations.every((destination) => destination.state === 'live') ? stream : undefined;
  });
  if (live.status !== 'active' || live.limits.maxSats !== 500) throw new Error(JSON.stringify(live));
  // Fields that may be null in the document must be checked for null.
  const since = live.destinations.map((destination): number => destination.liveSince ?? 0);

  const cost = ok(await client.GET('/api/public/streams/active/cost'));
  const own = cost.streams.find((stream) => stream.streamKeyId === id);
  if (!cost.hasActiveStream || own === undefined) throw new Error(JSON.stringify(cost));
  if (own.ratePerMinute !== pricing.COST_PER_PLATFORM) throw new Error(`a rate of ${own.ratePerMinute}`);

  const stopped = ok(await client.POST('/api/streams/{id}/stop', { params: { path } }));
  await until('end of the stream', async () => {
    const stream = ok(await client.GET('/api/streams/{id}', { params: { path } }));
    return stream.status === 'idle' && stream.lastEndReason === 'stopped' ? stream : undefined;
  });
  const history = await until('history', async () => {
    const entries = ok(await client.GET('/api/stream-history', { params: { query: { streamKeyId: id, limit: 10 } } }));
    return entries.length > 0 ? entries : undefined;
  });
  ok(await client.DELETE('/api/streams/{id}', { params: { path } }));
  const gone = await client.GET('/api/streams/{id}', { params: { path } });
  ok(await client.DELETE('/api/webhooks/{id}', { params: { path: { id: webhook.id } } }));
  const entries = ok(await client.GET('/api/audit', { params: { query: { limit: 3 } } }));
  const [last] = entries;
  if (last?.actor.type !== 'key' || last.target.id !== webhook.id) throw new Error(JSON.stringify(entries));
  console.log(JSON.stringify({
    since,
    stopped: stopped.message,
    history: history.map((entry) => entry.platform).sort(),
    gone: gone.error?.code,
    done: entries.map((entry) => entry.action),
  }));
} finally {
  encoder.kill('SIGKILL');
}
