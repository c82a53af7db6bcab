// A viewer of the player page: headless Chromium, keys and mouse.
//
//   node watch.mjs
//
// The browser starts, and steps are read from standard input, one on each line, until it ends:
//
//   open URL            opens an address; gives the status of its answer and what the viewer sees
//   embed URL           opens a page of another origin that has the address in a frame
//   sandbox URL         the same, with a sandboxed frame without its own origin
//   native URL          opens an address in a browser without Media Source
//   reload              loads the page again
//   size WIDTH HEIGHT   makes the window as large
//   until STATE         waits for that state of the page; for `playing`, also until the video has moved
//   signal NAME         waits until the page says so of the streamer: on, away or over
//   idle MILLISECONDS   gives how many requests there were in that time
//   key NAME            presses a key
//   click SELECTOR      presses a control
//   state               gives what the viewer sees
//   shot FILE           writes a screenshot of the page (PNG)
//
// An address that ends in #strict is opened by a browser that plays nothing, not even muted, before a user gesture.
//
// Each step gives one line of JSON: {"step":"open","ok":true,...}.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { launch } from './browser.mjs';

const STEP_LIMIT_MS = 40_000;
const LOOK_MS = 250;
const HOST = '127.0.0.1';
const SIZE = { width: 960, height: 540 };

/** Of the first address. */
let service = null;

const browser = await launch(HOST);
const tab = await browser.newPage({ viewport: SIZE });
tab.setDefaultTimeout(STEP_LIMIT_MS);
// A browser plays no audio before a user gesture. Each evaluation of this script in the page would count as one.
await tab.addInitScript(() => {
  const { play } = HTMLMediaElement.prototype;
  let here = false;
  for (const sign of ['pointerdown', 'keydown']) {
    addEventListener(sign, () => (here = true), true);
  }
  HTMLMediaElement.prototype.play = function () {
    return (this.muted && location.hash !== '#strict') || here ? play.call(this) : Promise.reject(new DOMException('nobody was here yet', 'NotAllowedError'));
  };
});

/** The requests: paths with the key in address or referrer, and addresses on other hosts. */
const requests = { all: 0, withKey: [], referrers: [], foreign: [] };
const complaints = [];
let embedder = null;
tab.on('request', (request) => {
  const address = new URL(request.url());
  if (!/^https?:$/.test(address.protocol)) {
    return;
  }
  requests.all += 1;
  if (address.origin !== service && address.origin !== embedder) {
    requests.foreign.push(address.href);
  }
  if (/pk_/.test(address.href) && !requests.withKey.includes(address.pathname)) {
    requests.withKey.push(address.pathname);
  }
  const { referer } = request.headers();
  if (referer && /pk_/.test(referer)) {
    requests.referrers.push(address.pathname);
  }
});
tab.on('pageerror', (error) => complaints.push(error.message));
tab.on('console', (message) => {
  // Refused requests are in the console as well; the reaction of the page is what counts.
  if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) {
    complaints.push(message.text());
  }
});

let view = tab.mainFrame();

const lookNow = () =>
  view.evaluate(() => {
    const get = (id) => document.getElementById(id);
    const video = get('video');
    const controls = [...document.querySelectorAll('#row > button, #seek, #start, #retry')].filter((one) => one.offsetParent !== null);
    const box = document.documentElement.getBoundingClientRect();
    const inside = (one) => {
      const { left, right, top, bottom } = one.getBoundingClientRect();
      return left >= 0 && right <= box.width && top >= 0 && bottom <= box.height;
    };
    return {
      state: get('player').dataset.state,
      edge: get('player').dataset.edge ?? null,
      signal: get('player').dataset.signal ?? null,
      away: get('away').checkVisibility(),
      start: get('start').checkVisibility(),
      poster: get('player').dataset.poster === 'yes',
      heading: document.querySelector('#about h1').checkVisibility() ? document.querySelector('#about h1').textContent : null,
      watching: get('viewers').checkVisibility() ? get('viewers').textContent : null,
      latency: get('latency').checkVisibility() ? get('latency').getAttribute('aria-pressed') : null,
      pip: get('pip').checkVisibility(),
      stage: get('stage').getBoundingClientRect().height,
      controlsTop: get('controls').getBoundingClientRect().top,
      title: document.title,
      headline: get('headline').textContent,
      advice: get('advice').textContent,
      said: get('announce').textContent,
      behind: get('behind').textContent,
      liveButton: get('live-word').textContent,
      seek: { most: Number(get('seek').max), value: Number(get('seek').value), text: get('seek').getAttribute('aria-valuetext') },
      position: video.currentTime,
      paused: video.paused,
      muted: video.muted,
      volume: video.volume,
      frames: video.getVideoPlaybackQuality().totalVideoFrames,
      shortcuts: get('keys').open,
      controls: controls.length,
      unnamed: controls.filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim())).length,
      outside: controls.filter((one) => !inside(one)).map((one) => one.id),
      small: controls.filter((one) => one.matches('button') && one.getBoundingClientRect().height < 44).map((one) => one.id),
      scrolls: document.documentElement.scrollWidth > document.documentElement.clientWidth,
      keyInPage: document.documentElement.outerHTML.includes('pk_'),
      stored: self.origin === 'null' ? null : localStorage.getItem('satcast.volume'),
    };
  });

/** What the viewer sees; while a page loads itself again, what is seen after that. It may do so more than once. */
async function look() {
  const began = Date.now();
  for (;;) {
    try {
      return await lookNow();
    } catch (error) {
      if (!error.message.includes('Execution context was destroyed') || Date.now() - began > STEP_LIMIT_MS) {
        throw error;
      }
    }
    await view.waitForLoadState();
  }
}

/** Polls until `wanted` accepts the shown state. */
async function until(wanted) {
  const began = Date.now();
  for (;;) {
    const seen = await look();
    if (wanted(seen)) {
      return seen;
    }
    if (Date.now() - began > STEP_LIMIT_MS) {
      throw new Error(`still ${JSON.stringify(seen)}`);
    }
    await new Promise((done) => setTimeout(done, LOOK_MS));
  }
}

/** A site of another origin with the player in a frame. */
async function embed(address, attributes) {
  const page = `<!doctype html><title>A site</title><link rel="icon" href="data:,"><h1>A site</h1>
    <iframe src="${address}" width="640" height="360" ${attributes} title="Player"></iframe>`;
  const server = createServer((_, response) => response.writeHead(200, { 'Content-Type': 'text/html' }).end(page));
  server.listen(0, HOST);
  await once(server, 'listening');
  server.unref();
  embedder = `http://${HOST}:${server.address().port}`;
  await tab.goto(embedder);
  view = await (await tab.waitForSelector('iframe')).contentFrame();
  await view.waitForSelector('#player', { state: 'attached' });
}

const STEPS = {
  async open(address) {
    service ??= new URL(address).origin;
    // A different fragment alone would not reload the page.
    await tab.goto('about:blank');
    const answer = await tab.goto(address);
    view = tab.mainFrame();
    return { status: answer.status(), ...(await look()) };
  },
  async embed(address) {
    await embed(address, 'allow="autoplay; fullscreen"');
    return {};
  },
  async sandbox(address) {
    await embed(address, 'allow="autoplay" sandbox="allow-scripts"');
    return {};
  },
  async native(address) {
    await tab.addInitScript(() => {
      for (const name of ['MediaSource', 'ManagedMediaSource', 'WebKitMediaSource']) {
        delete window[name];
      }
    });
    return STEPS.open(address);
  },
  async reload() {
    await tab.reload();
    return look();
  },
  async size(text) {
    const [width, height] = text.split(' ').map(Number);
    await tab.setViewportSize({ width, height });
    return {};
  },
  async until(state) {
    let position = null;
    return until((seen) => {
      const moved = position !== null && seen.position > position + 0.2;
      position ??= seen.state === 'playing' ? seen.position : null;
      return seen.state === state && (state !== 'playing' || moved);
    });
  },
  async signal(name) {
    return until((seen) => seen.signal === name && (name !== 'away' || seen.away));
  },
  async idle(ms) {
    const before = requests.all;
    await new Promise((done) => setTimeout(done, Number(ms)));
    return { came: requests.all - before };
  },
  async key(name) {
    await tab.keyboard.press(name);
    return look();
  },
  async click(selector) {
    // A control with the focus stays visible, however long this machine takes to press it.
    await view.focus(selector);
    await view.click(selector);
    return look();
  },
  async state() {
    return { ...(await look()), requests, complaints };
  },
  async shot(path) {
    await view.hover('#player');
    await tab.screenshot({ path });
    return { path };
  },
};

async function run(name, argument) {
  try {
    const step = STEPS[name];
    if (!step) {
      throw new Error(`there is no step "${name}"`);
    }
    console.log(JSON.stringify({ step: name, ok: true, ...(await step(argument)) }));
    return true;
  } catch (error) {
    console.log(JSON.stringify({ step: name, ok: false, error: error.message, requests, complaints }));
    return false;
  }
}

let good = true;
for await (const line of createInterface({ input: process.stdin })) {
  const [name, argument] = line.trim().split(/ (.*)/s);
  good = (await run(name, argument)) && good;
}
await browser.close();
process.exit(good ? 0 : 1);
