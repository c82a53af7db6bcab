// Tests of the player page's logic without a browser: `node --test`.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

/** Loads a module of the page. */
async function load(name) {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL(`watch/${name}.ts`, import.meta.url))],
    bundle: true,
    format: 'esm',
    write: false,
  });
  return import(`data:text/javascript,${encodeURIComponent(outputFiles[0].text)}`);
}

test('times are shown and spoken', async () => {
  const { clock, spoken } = await load('text');
  const cases = [
    [0, '0:00', '0 seconds'],
    [-3, '0:00', '0 seconds'],
    [1.4, '0:01', '1 second'],
    [59.6, '1:00', '1 minute'],
    [125, '2:05', '2 minutes 5 seconds'],
    [3600, '1:00:00', '1 hour'],
    [3725, '1:02:05', '1 hour 2 minutes'],
  ];
  for (const [seconds, shown, said] of cases) {
    assert.equal(clock(seconds), shown);
    assert.equal(spoken(seconds), said);
  }
});

test('every reason has a headline and advice', async () => {
  const { NOTICES } = await load('text');
  for (const [reason, { headline, advice }] of Object.entries(NOTICES)) {
    assert.ok(headline, reason);
    assert.ok(advice || ['starting', 'ready'].includes(reason), reason);
  }
});

test('options are read from the URL, and the key is sent only with the index', async () => {
  const { options } = await load('options');
  const at = (search) => options({ pathname: '/watch/4GyTq0', search, hash: '#t=9' }, 'stream');
  assert.deepEqual(at('?apiKey=pk_a'), {
    key: 'pk_a',
    kind: 'stream',
    index: '/hls/4GyTq0/index.m3u8?apiKey=pk_a',
    from: 0,
    autoplay: true,
    muted: false,
    viewers: '',
  });
  assert.deepEqual(at('?key=pk_a%26b&autoplay=0&muted=1'), {
    key: 'pk_a&b',
    kind: 'stream',
    index: '/hls/4GyTq0/index.m3u8?apiKey=pk_a%26b',
    from: 0,
    autoplay: false,
    muted: true,
    viewers: '',
  });
  assert.equal(at('?apiKey=pk_a&viewers=1').viewers, '/watch/4GyTq0/viewers?apiKey=pk_a');
  assert.equal(at('').key, '');
  assert.equal(at('?token=T').key, '', 'only recordings have owners with a token');
  const of = (search, kind = 'recording', hash = '') => options({ pathname: '/watch/vod/7', search, hash }, kind);
  assert.equal(of('?token=T').index, '/vod/7/index.m3u8?token=T');
  assert.equal(of('?token=T', 'clip').index, '/vod/7/clip.mp4?token=T');
  assert.equal(of('?apiKey=pk_a&viewers=1', 'clip').viewers, '');
  for (const [hash, from] of [['#t=43.5', 43.5], ['', 0], ['#strict', 0], ['#t=x', 0], ['#t=-4', 0]]) {
    assert.equal(of('?token=T', 'recording', hash).from, from, hash);
  }
  assert.equal(of('?token=T&apiKey=pk_a&viewers=1').index, '/vod/7/index.m3u8?apiKey=pk_a');
  assert.equal(of('?apiKey=pk_a&viewers=1').viewers, '');
});

test('stored audio settings are validated', async () => {
  const { storedAudio, storeAudio } = await load('options');
  assert.deepEqual(storedAudio(), { volume: 1, muted: false }, 'a frame without storage');
  let stored = null;
  globalThis.localStorage = { getItem: () => stored, setItem: (_, text) => (stored = text) };
  storeAudio({ volume: 0.3, muted: true });
  assert.deepEqual(storedAudio(), { volume: 0.3, muted: true });
  for (const odd of ['nonsense', '{"volume":7}', '{"volume":"1"}', '[]']) {
    stored = odd;
    assert.equal(storedAudio().volume, 1, odd);
  }
});

test('checks have jitter, and are rarer on hidden pages and after failures', async () => {
  const { pause } = await load('source');
  globalThis.document = { hidden: false };
  for (let time = 0; time < 200; time += 1) {
    assert.ok(pause('offline', time) >= 3_000 && pause('offline', time) <= 5_000);
    assert.ok(pause('lost', 0) <= 1_250 && pause('lost', time) <= 18_750);
  }
  assert.ok(pause('lost', 10) >= 11_250);
  assert.ok(pause('starting', 9) <= 1_250, 'the first segment comes in seconds');
  globalThis.document = { hidden: true };
  assert.ok(pause('offline', 0) >= 15_000);
});

test('an encoder that is away is distinguished from irregular segments', async () => {
  const { SignalMonitor } = await load('signal');
  const listed = (version, more = {}) => ({ version, live: true, targetSecs: 2, ageSecs: 1, ...more });
  const after = (...playlists) => {
    const monitor = new SignalMonitor();
    for (const [at, version, more] of playlists) {
      monitor.update(listed(version, more), at);
    }
    return monitor.signal;
  };
  assert.equal(after([0, 'a']), 'on');
  assert.equal(after([0, 'a'], [3.9, 'a']), 'on', 'a late segment');
  assert.equal(after([0, 'a'], [4, 'a']), 'away');
  assert.equal(after([0, 'a', { targetSecs: 8 }], [15, 'a', { targetSecs: 8 }]), 'on', 'long segments');
  assert.equal(after([0, 'a', { targetSecs: 8 }], [16, 'a', { targetSecs: 8 }]), 'away');
  assert.equal(after([0, 'a'], [30, 'b']), 'on', 'a viewer whose page was suspended');
  assert.equal(after([0, 'a'], [4, 'a'], [5, 'a'], [6, 'b']), 'on', 'back');
  assert.equal(after([0, 'a'], [4, 'a'], [6, 'b'], [9, 'b']), 'on');
  assert.equal(after([0, 'a', { ageSecs: 11 }]), 'away', 'a viewer who arrives while the encoder is away');
  assert.equal(after([0, 'a', { ageSecs: 11 }], [1, 'a', { ageSecs: 12 }]), 'away');
  assert.equal(after([0, 'a', { ageSecs: 11 }], [2, 'b', { ageSecs: 11 }]), 'on', 'a wrong clock');
  assert.equal(after([0, 'a', { ageSecs: null }]), 'on');
  assert.equal(after([0, 'a', { live: false, ageSecs: 99 }]), 'over');
  assert.equal(after([0, 'a'], [9, 'a'], [10, 'a', { live: false }]), 'over');
  const monitor = new SignalMonitor();
  monitor.update(listed('a'), 0);
  monitor.waitTimedOut();
  assert.equal(monitor.signal, 'away', 'a blocking reload that timed out');
  monitor.update(listed('b'), 1);
  assert.equal(monitor.signal, 'on');
  monitor.update(listed('b', { live: false }), 2);
  monitor.waitTimedOut();
  assert.equal(monitor.signal, 'over');
});

test('stalled playback ends if it cannot continue', async () => {
  const { Still } = await load('still');
  const looks = (...seen) => {
    const still = new Still(false);
    return seen.map(([at, currentTime, signal, paused = false]) => still.look({ currentTime, paused }, signal, at * 1_000)).at(-1);
  };
  const recorded = (...seen) => {
    const still = new Still(true);
    const look = ([at, currentTime, paused = false]) => still.look({ currentTime, paused, duration: 60 }, 'over', at * 1_000);
    return seen.map(look).at(-1);
  };
  assert.equal(recorded([0, 7], [19, 7]), null, 'media of a recording may come late');
  assert.equal(recorded([0, 7], [20, 7]), 'lost', 'not the end');
  assert.equal(recorded([0, 7, true], [3_600, 7, true]), null, 'a viewer who paused');
  assert.equal(recorded([0, 59.8], [3, 59.8]), 'over');
  assert.equal(looks([0, 7, 'over'], [2, 7, 'over']), null, 'it may be the last frame');
  assert.equal(looks([0, 7, 'over'], [3, 7, 'over']), 'over');
  assert.equal(looks([0, 7, 'over'], [2, 8, 'over'], [4, 8, 'over']), null, 'the rest still plays');
  assert.equal(looks([0, 7, 'on'], [9, 7, 'over'], [11, 7, 'over']), null, 'counted from the end of the stream');
  assert.equal(looks([0, 7, 'over', true], [59, 7, 'over', true]), null, 'a viewer who paused');
  assert.equal(looks([0, 7, 'over', true], [60, 7, 'over', true]), 'over');
  assert.equal(looks([0, 7, 'on'], [19, 7, 'on']), null);
  assert.equal(looks([0, 7, 'on'], [20, 7, 'on']), 'lost');
  assert.equal(looks([0, 7, 'on', true], [900, 7, 'on', true]), null);
  assert.equal(looks([0, 7, 'away'], [900, 7, 'away']), null, 'waits while the encoder is away');
});
