// Tests of the text of licences: `node --test`.

import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { licences } from './licences.mjs';

const root = await mkdtemp(join(tmpdir(), 'satcast-licences-'));
after(() => rm(root, { recursive: true }));

/** Makes a package; gives a file of it, as a bundle names it. */
async function made(name, about, texts) {
  const folder = join(root, 'node_modules', name);
  await mkdir(join(folder, 'LICENSES'), { recursive: true });
  await writeFile(join(folder, 'package.json'), JSON.stringify({ name, version: '1.0.0', ...about }));
  await Promise.all(Object.entries(texts).map(([file, text]) => writeFile(join(folder, file), text)));
  return `node_modules/${name}/lib/index.js`;
}

test('each text stands once, below the packages that it belongs to', async () => {
  const files = [
    'watch/main.ts',
    await made('one', { license: 'MIT' }, { LICENSE: 'the text\n', 'README.md': 'no licence' }),
    await made('@scope/two', { licenses: [{ type: 'MIT' }] }, { 'licence.md': 'the text', 'LICENSES/a.txt': 'another' }),
    await made('three', { license: 'ISC', author: 'Somebody' }, {}),
  ];
  const text = await licences(root, files);
  assert.equal(text.split('the text').length, 2);
  assert.match(text, /@scope\/two 1\.0\.0 \(MIT\)\none 1\.0\.0 \(MIT\)\n\nthe text/);
  assert.match(text, /two 1\.0\.0 \(MIT\)\n\nanother/);
  assert.match(text, /three 1\.0\.0 \(ISC\)\n\n.*Somebody/);
  assert.doesNotMatch(text, /no licence/);
});

test('a package of another licence is refused', async () => {
  await assert.rejects(licences(root, [await made('four', { license: 'SSPL-1.0' }, {})]));
});
