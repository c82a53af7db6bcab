// A user of the dashboard: headless Chromium, mouse and keys.
//
//   node dashboard.mjs BASE
//
// BASE is the address of the service. Steps are read from standard input, each a line of JSON, until it ends:
//
//   {"do":"open","path":"/wallet"}     opens an address and waits for its heading and data; gives `title` and `heading`
//   {"do":"click","role":"button","name":NAME}
//   {"do":"fill","label":NAME,"value":TEXT}
//   {"do":"choose","label":NAME,"option":NAME}
//   {"do":"attach","label":NAME,"path":FILE}  chooses a file
//   {"do":"check","label":NAME}        ticks a box, chooses one of several
//   {"do":"see","text":NAME}           waits until the text is visible; with `role` and `name` instead of `text`: that part of the page
//   {"do":"miss","text":NAME}          waits until it is not; `role` and `name` as above
//   {"do":"read","css":SELECTOR}       gives `texts`: the visible text of each match, `values` of those that are fields
//   {"do":"figure","name":NAME}        gives `texts`: the values of the figures of this name
//   {"do":"press","keys":["Tab",...]}  presses keys; gives `focus`: role and name of what has the focus then, and whether that is visible.
//                                      With `label`, or `role` and `name`: in that control
//   {"do":"tab","role":"button","name":NAME}  presses Tab until this has the focus; gives `presses`, and `unseen`: what had the
//                                      focus on the way and was not visible or not marked; `back`: Shift+Tab
//   {"do":"focused","role":"button","name":NAME}  waits until this has the focus
//   {"do":"type","text":TEXT}          types into what has the focus
//   {"do":"axe"}                       gives `violations` of WCAG 2.2 AA and best practices, in light and dark; of an open dialog alone
//   {"do":"size","width":W,"height":H} makes the window as large; gives `overflow`: pixels that the page or a dialog is wider
//   {"do":"theme","name":"dark"}       colours of the system: light or dark; {"motion":"reduce"} as well
//   {"do":"shot","path":FILE}          writes a picture of the page (WebP, PNG by its name); `whole`: also what is below the window
//   {"do":"video"}                     gives position, size, pause, and how many frames were shown, of the page's video;
//                                      with `css`: of that one
//   {"do":"scroll"}                    scrolls to the end of the page; gives `longestTaskMs` of the main thread meanwhile
//   {"do":"offline","on":true}         takes the network away from the browser, and gives it back
//   {"do":"cut","path":"/api/events","on":true}  lets requests for one path fail from now on, and lets them pass again
//   {"do":"leave"}                     a new browser session: no cookies, nothing stored
//   {"do":"state"}                     gives path, complaints, requests to other hosts, whether an address had a secret, and how often
//                                      the page was loaded
//
// A NAME is the text itself, or a text of the dashboard by its key and arguments: {"t":"streams.add"}, {"t":"ui.copyNamed","with":["a"]};
// each argument is a NAME or a number. The label of an optional field is given without the mark of such fields. A `role` and `name` can
// have `pressed` beside them: true or false, for a button that stays pressed.
// `in` limits a step to one part of the page: {"role":"dialog","name":NAME}; `name` may be left out. `first` takes the first of several.
//
// Each step gives one line of JSON: {"step":"open","ok":true,...}.

import { readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { load } from '../../host/dashboard/src/testing.mjs';
import { launch } from './browser.mjs';

const STEP_LIMIT_MS = 40_000;
const SIZE = { width: 1280, height: 800 };
const SCROLL_MS = 3_000;
/** Most presses of Tab: a page with more stops is too long for the keyboard. */
const TABS_MAX = 80;
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22a', 'wcag22aa', 'best-practice'];
const PICTURE_QUALITY = 80;

const base = new URL(process.argv[2]);
const { en } = await load('messages/en');
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

const complaints = [];
const foreign = [];
const secretIn = [];
let loads = 0;
const browser = await launch(base.hostname, ['--autoplay-policy=no-user-gesture-required']);

/** A browser session with its page. The content policy of the page allows no injected script, so axe runs with it bypassed. */
async function session() {
  const context = await browser.newContext({ viewport: SIZE, locale: 'en-GB', timezoneId: 'UTC' });
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: base.origin });
  const page = await context.newPage();
  page.setDefaultTimeout(STEP_LIMIT_MS);
  page.on('request', (request) => {
    const address = new URL(request.url());
    if (/^https?:$/.test(address.protocol) && address.origin !== base.origin) {
      foreign.push(address.href);
    }
    if (/(?<![\w-])(sk|pk|inv|log|whsec)_\w/.test(address.href.split('#')[0])) {
      secretIn.push(address.pathname);
    }
  });
  page.on('domcontentloaded', () => (loads += 1));
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    // Refused requests are in the console as well; the reaction of the page is what counts.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) {
      complaints.push(message.text());
    }
  });
  return page;
}

let page = await session();
/** Paths whose requests fail, each with the test that finds them. */
const cuts = new Map();

/** The text that a name stands for. */
function text(name) {
  if (typeof name !== 'object') {
    return name;
  }
  const found = name.t.split('.').reduce((part, key) => part?.[key], en);
  const shown = typeof found === 'function' ? found(...(name.with ?? []).map(text)) : found;
  if (typeof shown !== 'string') {
    throw new Error(`there is no text ${name.t}`);
  }
  return shown;
}

/** Where a step looks. */
function scope({ in: part }) {
  return part ? byRole(page, part) : page;
}

const byRole = (within, { role, name, pressed }) =>
  within.getByRole(role, {
    ...(name === undefined ? {} : { name: text(name), exact: true }),
    ...(pressed === undefined ? {} : { pressed }),
  });

/** The control of a label; the label of an optional field ends with a mark. */
const byLabel = (within, label) =>
  within.getByLabel(label, { exact: true }).or(within.getByLabel(`${label} ${en.ui.optional}`, { exact: true }));

/** The part of the page that a step names. */
function target(step) {
  const within = scope(step);
  const found = step.css
    ? within.locator(step.css)
    : step.role
      ? byRole(within, step)
      : step.label
        ? byLabel(within, text(step.label))
        : within.getByText(text(step.text), { exact: step.exact ?? false });
  return step.first ? found.first() : found;
}

/** Done when the page has its heading and no skeleton. */
async function settled() {
  await page.locator('h1').first().waitFor();
  await page.waitForFunction(() => !document.querySelector('.skeleton'));
}

/** What has the focus; `null` if nothing has. A control may be drawn by its label or by the element after it. */
const focus = () =>
  page.evaluate(() => {
    const one = document.activeElement;
    if (!one || one === document.body) {
      return null;
    }
    const box = one.getBoundingClientRect();
    const between = (from, to, size) => Math.min(Math.max((from + to) / 2, 0), size - 1);
    const top = document.elementFromPoint(between(box.left, box.right, innerWidth), between(box.top, box.bottom, innerHeight));
    const isInside = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
    const isCovered = ![one, ...(one.labels ?? [])].some((own) => own.contains(top) || top?.contains(own));
    const isMarked = (drawn) => drawn && getComputedStyle(drawn).outlineStyle !== 'none';
    const name = one.getAttribute('aria-label') ?? one.labels?.[0]?.textContent ?? one.textContent;
    return {
      tag: one.tagName.toLowerCase(),
      role: one.getAttribute('role'),
      name: name.trim().replace(/\s+/g, ' '),
      href: one.getAttribute('href'),
      visible: box.width > 0 && box.height > 0 && isInside && !isCovered,
      marked: Boolean(isMarked(one) || isMarked(one.nextElementSibling)),
    };
  });

const hasFocus = (found) => found.evaluateAll((all) => all.includes(document.activeElement));

/** All rules, or only those that look at colours. Of a page with an open dialog only the dialog: nothing else can be used, and without
 *  it the page has its own look. */
async function violations(onlyColours) {
  await page.evaluate(() => document.fonts.ready);
  return page.evaluate(
    async ([tags, colours]) => {
      const ofColours = globalThis.axe.getRules(['cat.color']).filter(({ tags: own }) => own.some((tag) => tags.includes(tag)));
      const { violations: found } = await globalThis.axe.run(document.querySelector('dialog[open]') ?? document, {
        runOnly: colours ? ofColours.map(({ ruleId }) => ruleId) : tags,
        // What passes is not described, and does not leave the page.
        resultTypes: ['violations'],
        selectors: false,
      });
      return found.map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html, failureSummary }) => ({ html, failureSummary })) }));
    },
    [RULES, onlyColours],
  );
}

const STEPS = {
  async open({ path }) {
    await page.goto(new URL(path, base).href);
    await settled();
    return { title: await page.title(), heading: await page.locator('h1').first().textContent() };
  },
  click: (step) => target(step).click(),
  fill: (step) => target(step).fill(text(step.value)),
  async choose(step) {
    await target(step).selectOption({ label: text(step.option) });
  },
  attach: (step) => target(step).setInputFiles(step.path),
  check: (step) => target(step).check(),
  see: (step) => target(step).first().waitFor({ state: 'visible' }),
  async miss(step) {
    const found = target(step);
    const end = Date.now() + STEP_LIMIT_MS;
    while ((await found.filter({ visible: true }).count()) > 0) {
      if (Date.now() > end) {
        throw new Error('it is still there');
      }
      await page.waitForTimeout(50);
    }
  },
  async read(step) {
    const found = target(step).filter({ visible: true });
    const texts = (await found.allInnerTexts()).map((shown) => shown.trim());
    return { texts, values: await found.evaluateAll((all) => all.map((one) => one.value ?? null)) };
  },
  async figure(step) {
    const name = page.getByText(text(step.name), { exact: true });
    const found = scope(step).locator('dl > div').filter({ has: name, visible: true });
    return { texts: (await found.locator('dd').allInnerTexts()).map((shown) => shown.trim()) };
  },
  async press({ keys, ...step }) {
    if (step.label || step.role) {
      await target(step).focus();
    }
    for (const key of keys) {
      await page.keyboard.press(key);
    }
    return { focus: await focus() };
  },
  async tab(step) {
    const wanted = target(step);
    const unseen = [];
    for (let presses = 1; presses <= TABS_MAX; presses += 1) {
      await page.keyboard.press(step.back ? 'Shift+Tab' : 'Tab');
      const now = await focus();
      if (now && !(now.visible && now.marked)) {
        unseen.push(now);
      }
      if (await hasFocus(wanted)) {
        return { presses, focus: now, unseen };
      }
    }
    throw new Error(`it did not get the focus with ${TABS_MAX} presses`);
  },
  async focused(step) {
    const wanted = target(step);
    const end = Date.now() + STEP_LIMIT_MS;
    while (!(await hasFocus(wanted))) {
      if (Date.now() > end) {
        throw new Error(`the focus is at ${JSON.stringify(await focus())}`);
      }
      await page.waitForTimeout(50);
    }
  },
  type: (step) => page.keyboard.type(text(step.text)),
  async axe() {
    await settled();
    if (!(await page.evaluate(() => 'axe' in globalThis))) {
      // By the debugger, which the page's policy does not bind.
      await page.evaluate(await readFile(AXE, 'utf8'));
    }
    const found = {};
    // Only colours depend on the theme: the document and its names are the same in both.
    for (const [colorScheme, onlyColours] of [['light', false], ['dark', true]]) {
      await page.emulateMedia({ colorScheme });
      found[colorScheme] = await violations(onlyColours);
    }
    await page.emulateMedia({ colorScheme: null });
    return { violations: found };
  },
  async size({ width, height }) {
    await page.setViewportSize({ width, height });
    await page.waitForTimeout(100);
    const overflow = await page.evaluate(() => {
      const parts = [document.documentElement, ...document.querySelectorAll('dialog[open]')];
      return Math.max(...parts.map(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth));
    });
    return { overflow };
  },
  async theme({ name, motion }) {
    await page.emulateMedia({ colorScheme: name ?? null, reducedMotion: motion ?? null });
    // Charts are drawn again.
    await page.waitForTimeout(100);
  },
  async shot({ path, whole }) {
    await page.evaluate(() => document.fonts.ready);
    if (path.endsWith('.png')) {
      await page.screenshot({ path, fullPage: whole ?? false });
      return { path };
    }
    const devtools = await page.context().newCDPSession(page);
    const { data } = await devtools.send('Page.captureScreenshot', {
      format: 'webp',
      quality: PICTURE_QUALITY,
      captureBeyondViewport: whole ?? false,
    });
    await devtools.detach();
    await writeFile(path, Buffer.from(data, 'base64'));
    return { path };
  },
  video: ({ css }) =>
    page.locator(css ?? 'video').first().evaluate((video) => ({
      position: video.currentTime,
      paused: video.paused,
      width: video.videoWidth,
      frames: video.getVideoPlaybackQuality().totalVideoFrames,
    })),
  async scroll() {
    return page.evaluate(async (limit) => {
      let longestTaskMs = 0;
      const observer = new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) {
          longestTaskMs = Math.max(longestTaskMs, Math.round(duration));
        }
      });
      observer.observe({ type: 'longtask' });
      const end = performance.now() + limit;
      while (performance.now() < end) {
        scrollBy(0, innerHeight / 4);
        await new Promise(requestAnimationFrame);
      }
      await new Promise((done) => setTimeout(done, 200));
      observer.disconnect();
      return { longestTaskMs, scrolled: scrollY };
    }, SCROLL_MS);
  },
  offline: ({ on }) => page.context().setOffline(on),
  async cut({ path, on }) {
    const matches = (address) => address.pathname === path;
    await page.unroute(cuts.get(path) ?? matches);
    if (on) {
      cuts.set(path, matches);
      await page.route(matches, (route) => route.abort());
    }
  },
  async leave() {
    await page.context().close();
    page = await session();
  },
  state: () => ({ path: new URL(page.url()).pathname, complaints, foreign, secretIn, loads }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line);
  try {
    const run = STEPS[step.do];
    if (!run) {
      throw new Error('there is no such step');
    }
    const result = await run(step);
    console.log(JSON.stringify({ step: step.do, ok: true, ...result }));
  } catch (error) {
    const shown = await page.locator('body').innerText({ timeout: 1_000 }).catch(() => '');
    console.log(JSON.stringify({ step: step.do, ok: false, error: error.message, asked: step, shown, complaints }));
  }
}
await browser.close();
