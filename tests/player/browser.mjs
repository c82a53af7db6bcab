// The browser of every script here: headless Chromium that sends nothing to other hosts.

import { chromium } from 'playwright-core';

/** Starts it; it may reach `host` and nothing else. `more` are further switches. */
export const launch = (host, more = []) =>
  chromium.launch({
    executablePath: '/usr/bin/chromium-headless-shell',
    headless: true,
    args: [
      '--no-sandbox',
      `--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE ${host}`,
      // Pages of tests are too short for optimised code and drawing by a simulated graphics card to pay: a tenth of a test each.
      '--js-flags=--no-turbofan --no-maglev',
      '--disable-gpu',
      '--disable-software-rasterizer',
      ...more,
    ],
  });
