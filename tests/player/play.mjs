// A viewer: headless Chromium that plays an HLS address, in hls.js or by itself.
//
//   node play.mjs [--native] [URL [STEP...]]
//
// The page comes from a server of its own on another port, so that the service's CORS headers are needed.
// Steps are words; without any they are read from standard input, one on each line, until it ends. Without a URL the browser starts
// and waits for the first step:
//
//   open URL        plays an address from the beginning, in a fresh page; gives when the first frame was shown
//   wait SECONDS    watches; gives the state and how the video moved
//   resolution WIDTH SECONDS
//                   watches until the video has this width and was shown for these seconds; gives what `wait` gives
//   state           gives the state
//   back SECONDS    seeks back from here
//   oldest          seeks to the oldest second of the window; where a player offers none, `to` is null
//   frame           gives the second that the next frame shows (see Publish::clock), and its position
//   live            returns to the live edge
//   reload          loads the address again
//   shot FILE       writes a screenshot of the player (PNG)
//
// (on the command line with `:` instead of the space). Each step gives one line of JSON, with a URL the first one is of opening it:
// {"step":"open","ok":true,...}. A step that fails has "ok":false and "error". The exit code is 1 when one failed or the player met a
// fatal error, else 0.

import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { launch } from './browser.mjs';

// Longest wait for the first frame, or for the frame after a seek.
const STEP_LIMIT_MS = 30_000;
// Time between the two compared frames.
const MOVE_MS = 400;
const HOST = '127.0.0.1';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    native: { type: 'boolean', default: false },
  },
});
const [url, ...script] = positionals;
const mode = options.native ? 'native' : 'hls.js';

const FILES = {
  '/': ['text/html', new URL('page.html', import.meta.url)],
  '/page.js': ['text/javascript', new URL('page.js', import.meta.url)],
  '/hls.js': ['text/javascript', createRequire(import.meta.url).resolve('hls.js/dist/hls.min.js')],
};

/** Serves the page and hls.js; gives its address. */
async function servePage() {
  const server = createServer((request, response) => {
    const file = FILES[request.url];
    if (!file) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { 'Content-Type': file[0] });
    createReadStream(file[1]).pipe(response);
  });
  server.listen(0, HOST);
  await once(server, 'listening');
  return `http://${HOST}:${server.address().port}/`;
}

const noRequests = () => ({ byStatus: {}, byKind: {}, withKey: [], failed: {} });

/** Records the requests of the page. */
function countRequests(page) {
  const add = (table, name) => {
    table[name] = (table[name] ?? 0) + 1;
  };
  page.on('response', (response) => {
    const { origin, pathname } = new URL(response.url());
    if (origin !== service) {
      return;
    }
    add(requests.byStatus, response.status());
    add(requests.byKind, pathname.split('.').at(-1));
    if (/pk_|apiKey/.test(response.url())) {
      requests.withKey.push(pathname);
    }
  });
  page.on('requestfailed', (request) => {
    // hls.js aborts requests that it no longer needs.
    if (service && request.url().startsWith(service)) {
      add(requests.failed, request.failure()?.errorText ?? 'unknown');
    }
  });
}

/** Lines of the console that are errors: a CORS refusal shows only there. */
function collectComplaints(page) {
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error') {
      complaints.push(message.text());
    }
  });
}

/** Fails when `work` takes longer than a step may. */
function inTime(work) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${STEP_LIMIT_MS} ms`)), STEP_LIMIT_MS);
  });
  return Promise.race([work, limit]).finally(() => clearTimeout(timer));
}

const browser = await launch(HOST, ['--autoplay-policy=no-user-gesture-required']);
const page = await browser.newPage();
let address = url;
let service = null;
let requests = noRequests();
let complaints = [];
countRequests(page);
collectComplaints(page);
const site = await servePage();

const state = async () => ({ ...(await page.evaluate(() => player.state())), requests, complaints });
const seek = async (to) => page.evaluate((place) => player.seek(place), to);

const seen = async () => ({ ...(await state()), pixels: await page.evaluate((ms) => player.pixels(ms), MOVE_MS) });

const STEPS = {
  async open(where) {
    await page.goto('about:blank');
    address = where;
    service = new URL(where).origin;
    requests = noRequests();
    complaints = [];
    await page.goto(site);
    return page.evaluate(([how, to]) => player.start(how, to), [mode, where]);
  },
  async wait(seconds) {
    await page.evaluate(() => player.watch());
    await new Promise((done) => setTimeout(done, Number(seconds) * 1000));
    return seen();
  },
  async resolution(wanted) {
    const [width, seconds] = wanted.split(' ').map(Number);
    await page.evaluate(([wide, long]) => player.resolution(wide, long), [width, seconds]);
    return seen();
  },
  state,
  async back(seconds) {
    return seek((await page.evaluate(() => player.position())) - Number(seconds));
  },
  async oldest() {
    return page.evaluate(() => player.oldest());
  },
  async frame() {
    return page.evaluate(() => player.frame());
  },
  async live() {
    return seek(await page.evaluate(() => player.liveEdge()));
  },
  async reload() {
    await page.evaluate((where) => player.reload(where), address);
    return {};
  },
  async shot(path) {
    await page.locator('video').screenshot({ path });
    return { path };
  },
};

/** Runs one step and prints its result; false when it failed. */
async function run(name, argument) {
  try {
    const step = STEPS[name];
    if (!step) {
      throw new Error(`there is no step "${name}"`);
    }
    const work = step(argument);
    const result = await (name === 'wait' ? work : inTime(work));
    console.log(JSON.stringify({ step: name, ok: true, ...result }));
    return true;
  } catch (error) {
    const found = await state().catch(() => ({}));
    console.log(JSON.stringify({ step: name, ok: false, error: error.message, ...found }));
    return false;
  }
}

/** The steps of the command line, or of standard input as they come. */
async function* steps() {
  if (script.length > 0) {
    yield* script.map((word) => word.split(/:(.*)/s));
  } else {
    for await (const line of createInterface({ input: process.stdin })) {
      yield line.trim().split(/ (.*)/s);
    }
  }
}

let good = url ? await run('open', url) : true;
for await (const [name, argument] of good ? steps() : []) {
  good = (await run(name, argument)) && good;
}
const { fatal } = service ? await page.evaluate(() => player.state()) : { fatal: [] };
await browser.close();
process.exit(good && fatal.length === 0 ? 0 : 1);
