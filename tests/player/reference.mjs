// A reader of the API reference: headless Chromium opens the page, enters a key, and lists the streams with it.
//
//   node reference.mjs PAGE KEY SHOTS
//
// SHOTS is the beginning of the names of two screenshots (PNG), in light and dark colours. Prints one line of JSON: the title,
// the groups in their order, the status and body of the answer, complaints of the browser, addresses on other hosts, and whether
// the browser stored anything.

import { launch } from './browser.mjs';

const STEP_LIMIT_MS = 40_000;
const SIZE = { width: 1100, height: 900 };

const [page, key, shots] = process.argv.slice(2);
const { origin, hostname } = new URL(page);
const complaints = [];
const foreign = [];

const browser = await launch(hostname);
const tab = await browser.newPage({ viewport: SIZE });
tab.setDefaultTimeout(STEP_LIMIT_MS);
tab.on('request', (request) => {
  const { protocol, origin: asked } = new URL(request.url());
  if (protocol !== 'data:' && asked !== origin) {
    foreign.push(request.url());
  }
});
tab.on('pageerror', (error) => complaints.push(error.message));
tab.on('console', (message) => {
  if (message.type() === 'error') {
    complaints.push(message.text());
  }
});

await tab.goto(page);
await tab.waitForSelector('.opblock-tag');
const groups = await tab.$$eval('.opblock-tag', (tags) => tags.map((tag) => tag.dataset.tag));
await tab.fill('#key', key);
await tab.press('#key', 'Enter');

const operation = tab.locator('#operations-Streams-listStreams');
await operation.locator('.opblock-summary-control').click();
await operation.locator('.try-out__btn').click();
await operation.locator('.execute').click();
const answer = operation.locator('.live-responses-table .response');
const status = (await answer.locator('.response-col_status').innerText()).trim();
const body = await answer.locator('.response-col_description').innerText();

for (const colorScheme of ['light', 'dark']) {
  await tab.emulateMedia({ colorScheme });
  await operation.scrollIntoViewIfNeeded();
  await tab.screenshot({ path: `${shots}-${colorScheme}.png` });
}
const stored = await tab.evaluate(() => localStorage.length + sessionStorage.length);
console.log(JSON.stringify({ title: await tab.title(), groups, status, body, complaints, foreign, stored }));
await browser.close();
