// Builds the pages into the folder that the service reads when it starts. The manual beside them stays:
//
//   node build.mjs FOLDER
//
//   FOLDER/index.html      the dashboard
//   FOLDER/watch.html      the player page, with slots that the service fills in
//   FOLDER/docs.html       the API reference
//   FOLDER/licences.txt    the licences of the packages in them
//   FOLDER/assets/*        scripts and styles, each with its content's hash in its name, so that browsers may cache them forever
//
// Fails if a page is larger than its limit.

import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { licences } from './licences.mjs';
import { writeTypes } from './types.mjs';

// Browsers that can load hls.js.
const PLAYERS = ['chrome100', 'firefox100', 'safari15.4'];
// Browsers with `light-dark()`.
const CURRENT = ['chrome123', 'firefox120', 'safari17.5'];

// Each page is a folder with a script `main`, `style.css` and `page.html`. The limits are compressed bytes: `script` of the page's
// own script, `first` of its script and style with the largest of its views, `all` of everything together.
const PAGES = [
  { name: 'index', folder: 'src', main: 'main.tsx', target: CURRENT, limits: { first: 60_000 } },
  // Most is hls.js, which is a script of its own.
  { name: 'watch', folder: 'watch', main: 'main.ts', target: PLAYERS, limits: { script: 10_000, all: 140_000 } },
  // Most is Swagger UI.
  { name: 'docs', folder: 'docs', main: 'main.ts', target: PLAYERS, limits: { script: 460_000, all: 500_000 } },
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
await writeTypes();

const mainOf = (page) => `${page.folder}/${page.main}`;
const styleOf = (page) => `${page.folder}/style.css`;

/** Bundles the script and the style of a page. Built one by one, so that pages share no file. */
async function bundle(page) {
  const { metafile } = await build({
    absWorkingDir: here('.'),
    entryPoints: { [page.name]: mainOf(page), [`${page.name}-style`]: styleOf(page) },
    outdir: assets,
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    target: page.target,
    // For packages that were written for Node.
    define: { global: 'globalThis' },
    minify: true,
    legalComments: 'none',
    metafile: true,
    logLevel: 'warning',
  });
  return metafile.outputs;
}

/** Path of the output of an entry point. */
function made(outputs, entry) {
  return Object.entries(outputs).find(([, from]) => from.entryPoint === entry)[0];
}

/** An output and all that it imports before it runs. */
function loadedWith(outputs, path, found = new Set()) {
  if (!found.has(path)) {
    found.add(path);
    for (const imported of outputs[path].imports) {
      if (imported.kind === 'import-statement' && !imported.external) {
        loadedWith(outputs, imported.path, found);
      }
    }
  }
  return found;
}

/** Fails if a page is larger than its limits. */
async function measure(page, outputs) {
  const bytes = {};
  for (const path of Object.keys(outputs)) {
    bytes[path] = gzipSync(await readFile(join(assets, basename(path)))).length;
  }
  const total = (paths) => paths.reduce((sum, path) => sum + bytes[path], 0);
  const main = made(outputs, mainOf(page));
  const shell = loadedWith(outputs, main).add(made(outputs, styleOf(page)));
  const views = Object.keys(outputs).filter((path) => outputs[path].entryPoint?.startsWith(`${page.folder}/pages/`));
  const added = views.map((path) => total([...loadedWith(outputs, path)].filter((loaded) => !shell.has(loaded))));
  const sizes = {
    script: bytes[main],
    first: total([...shell]) + Math.max(0, ...added),
    all: total(Object.keys(outputs)),
  };
  const figures = Object.entries(page.limits).map(([name, max]) => `${name} ${sizes[name]} of ${max} bytes`);
  console.log(`  ${page.name}.html, compressed: ${figures.join(', ')}`);
  if (Object.entries(page.limits).some(([name, max]) => sizes[name] > max)) {
    console.error(`${page.name}.html is larger than its limit; load parts of it later`);
    process.exit(1);
  }
}

const bundles = [];
for (const page of PAGES) {
  bundles.push(await bundle(page));
}
const inputs = bundles.flatMap((outputs) => Object.values(outputs).map((output) => output.inputs));
const bundled = inputs.flatMap((files) => Object.keys(files).filter((path) => files[path].bytesInOutput > 0));
await writeFile(join(folder, 'licences.txt'), await licences(here('.'), bundled));

for (const [index, page] of PAGES.entries()) {
  const outputs = bundles[index];
  const html = (await readFile(here(`${page.folder}/page.html`), 'utf8'))
    .replace('{{script}}', `/assets/${basename(made(outputs, mainOf(page)))}`)
    .replace('{{style}}', `/assets/${basename(made(outputs, styleOf(page)))}`);
  await writeFile(join(folder, `${page.name}.html`), html);
  await measure(page, outputs);
}
