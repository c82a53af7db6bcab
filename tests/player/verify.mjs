// Verifies webhook requests with the official library of Standard Webhooks: `node verify.mjs FILE`
//
// FILE holds {"secret", "requests": [{"headers", "body"}]}. Prints one JSON line for each request; the exit code is 1 when
// one of them was refused, 2 without a file.

import { readFileSync } from 'node:fs';
import { Webhook } from 'standardwebhooks';

const [file] = process.argv.slice(2);
if (file === undefined) {
  console.error('usage: node verify.mjs FILE');
  process.exit(2);
}

const { secret, requests } = JSON.parse(readFileSync(file, 'utf8'));
const webhook = new Webhook(secret);

/** The event that the library returned, or its reason for refusing. */
function verdict({ headers, body }) {
  try {
    return { ok: true, event: webhook.verify(body, headers) };
  } catch (error) {
    return { ok: false, error: error.message };
  }
}

const verdicts = requests.map(verdict);
for (const line of verdicts) {
  console.log(JSON.stringify(line));
}
process.exitCode = Number(verdicts.some((line) => !line.ok));
