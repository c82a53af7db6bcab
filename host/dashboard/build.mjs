// Builds the pages into the folder that the service reads when it starts:
//
//   node build.mjs FOLDER
//
//   FOLDER/watch.html      the player page, with slots that the service fills in
//   FOLDER/assets/*        scripts and styles, each with its content's hash in its name, so that browsers may cache them forever
//
// Fails if a script is larger than its limit.

import { createHash } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

// Most compressed bytes of the page's own script, and of everything together (hls.js is most of it).
const SCRIPT_BYTES_MAX = 10_000;
const ALL_BYTES_MAX = 140_000;

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const folder = process.argv[2];
if (!folder) {
  console.error('usage: node build.mjs FOLDER');
  process.exit(2);
}
const assets = join(folder, 'assets');
await rm(folder, { recursive: true, force: true });
await mkdir(assets, { recursive: true });

const { metafile } = await build({
  absWorkingDir: here('.'),
  entryPoints: { watch: 'watch/main.ts', 'watch-style': 'watch/style.css' },
  outdir: assets,
  entryNames: '[name]-[hash]',
  chunkNames: '[name]-[hash]',
  bundle: true,
  splitting: true,
  format: 'esm',
  target: ['chrome100', 'firefox100', 'safari15.4'],
  minify: true,
  legalComments: 'none',
  metafile: true,
  logLevel: 'warning',
});

/** File name of the output of an entry point. */
function made(entry) {
  const output = Object.entries(metafile.outputs).find(([, from]) => from.entryPoint === entry);
  return basename(output[0]);
}

const page = (await readFile(here('watch/page.html'), 'utf8'))
  .replace('{{script}}', `/assets/${made('watch/main.ts')}`)
  .replace('{{style}}', `/assets/${made('watch/style.css')}`);
await writeFile(join(folder, 'watch.html'), page);
const licence = await readFile(here('node_modules/hls.js/LICENSE'), 'utf8');
const licences = `The player uses hls.js, whose licence is this:\n\n${licence}`;
const hash = createHash('sha256').update(licences).digest('hex').slice(0, 8).toUpperCase();
await writeFile(join(assets, `licences-${hash}.txt`), licences);

const sizes = {};
for (const path of Object.keys(metafile.outputs)) {
  const name = basename(path);
  sizes[name] = gzipSync(await readFile(join(assets, name))).length;
}
const script = sizes[made('watch/main.ts')];
const all = Object.values(sizes).reduce((sum, size) => sum + size, 0);
console.log(`  player page: ${script} bytes of script, ${all} with hls.js, compressed`);
if (script > SCRIPT_BYTES_MAX || all > ALL_BYTES_MAX) {
  console.error(`the player page may have ${SCRIPT_BYTES_MAX} bytes of script and ${ALL_BYTES_MAX} in all`);
  process.exit(1);
}
