// Builds the pages into the folder that the service reads when it starts. The manual beside them stays:
//
//   node build.mjs FOLDER
//
//   FOLDER/watch.html      the player page, with slots that the service fills in
//   FOLDER/docs.html       the API reference
//   FOLDER/assets/*        scripts and styles, each with its content's hash in its name, so that browsers may cache them forever
//
// Fails if a page is larger than its limit.

import { createHash } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { licences } from './licences.mjs';

// Each page is a folder with `main.ts`, `style.css` and `page.html`. The limits are compressed bytes: of the page's own script, and
// of everything together.
const PAGES = [
  // Most is hls.js, which is a script of its own.
  { name: 'watch', scriptMax: 10_000, allMax: 140_000 },
  // Most is Swagger UI.
  { name: 'docs', scriptMax: 460_000, allMax: 500_000 },
];

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const folder = process.argv[2];
if (!folder) {
  console.error('usage: node build.mjs FOLDER');
  process.exit(2);
}
const assets = join(folder, 'assets');
await rm(assets, { recursive: true, force: true });
await mkdir(assets, { recursive: true });

/** Bundles the script and the style of a page. Built one by one, so that pages share no file. */
async function bundle(name) {
  const { metafile } = await build({
    absWorkingDir: here('.'),
    entryPoints: { [name]: `${name}/main.ts`, [`${name}-style`]: `${name}/style.css` },
    outdir: assets,
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    target: ['chrome100', 'firefox100', 'safari15.4'],
    // For packages that were written for Node.
    define: { global: 'globalThis' },
    minify: true,
    legalComments: 'none',
    metafile: true,
    logLevel: 'warning',
  });
  return metafile.outputs;
}

/** File name of the output of an entry point. */
function made(outputs, entry) {
  const output = Object.entries(outputs).find(([, from]) => from.entryPoint === entry);
  return basename(output[0]);
}

/** Fails if a page is larger than its limits. */
async function measure({ name, scriptMax, allMax }, outputs) {
  const sizes = {};
  for (const path of Object.keys(outputs)) {
    const file = basename(path);
    sizes[file] = gzipSync(await readFile(join(assets, file))).length;
  }
  const script = sizes[made(outputs, `${name}/main.ts`)];
  const all = Object.values(sizes).reduce((sum, size) => sum + size, 0);
  console.log(`  ${name}.html: ${script} bytes of script, ${all} in all, compressed`);
  if (script > scriptMax || all > allMax) {
    console.error(`${name}.html may have ${scriptMax} bytes of script and ${allMax} in all`);
    process.exit(1);
  }
}

const bundles = [];
for (const page of PAGES) {
  bundles.push(await bundle(page.name));
}
const inputs = bundles.flatMap((outputs) => Object.values(outputs).map((output) => output.inputs));
const bundled = inputs.flatMap((files) => Object.keys(files).filter((path) => files[path].bytesInOutput > 0));
const texts = await licences(here('.'), bundled);
const hash = createHash('sha256').update(texts).digest('hex').slice(0, 8).toUpperCase();
await writeFile(join(assets, `licences-${hash}.txt`), texts);

for (const [index, page] of PAGES.entries()) {
  const outputs = bundles[index];
  const html = (await readFile(here(`${page.name}/page.html`), 'utf8'))
    .replace('{{script}}', `/assets/${made(outputs, `${page.name}/main.ts`)}`)
    .replace('{{style}}', `/assets/${made(outputs, `${page.name}/style.css`)}`)
    .replace('{{licences}}', `/assets/licences-${hash}.txt`);
  await writeFile(join(folder, `${page.name}.html`), html);
  await measure(page, outputs);
}
