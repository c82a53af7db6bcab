// The licences of the packages that a bundle contains.

import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Licences under which a package may be shipped. */
const ALLOWED = new Set([
  '(MIT AND BSD-3-Clause)',
  '(MPL-2.0 OR Apache-2.0)',
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'ISC',
  'MIT',
  'Unlicense',
]);
const PACKAGE = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/;
const TEXT = /^(licen[cs]e|copying|notice)/i;

/**
 * The text of all licences: each text once, below the packages that it belongs to.
 *
 * @param root Folder of `node_modules`.
 * @param files Files in the bundles, relative to the root.
 */
export async function licences(root, files) {
  const folders = new Set(files.map((file) => PACKAGE.exec(file)?.[0]).filter(Boolean));
  const byText = new Map();
  for (const folder of [...folders].sort()) {
    const { title, texts } = await licence(join(root, folder));
    texts.forEach((text) => byText.set(text, (byText.get(text) ?? new Set()).add(title)));
  }
  const sections = [...byText].map(([text, titles]) => `${[...titles].join('\n')}\n\n${text}\n`);
  return `The pages of Satcast contain these packages.\n\n${sections.join(`\n${'-'.repeat(80)}\n\n`)}`;
}

/** Name and version of the package in `folder`, and the texts of its licence. */
async function licence(folder) {
  const about = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
  // Old packages have a list.
  const name = about.license ?? about.licenses?.[0]?.type;
  if (!ALLOWED.has(name)) {
    throw new Error(`${about.name} has the licence ${name}; add it to licences.mjs if a page may contain it`);
  }
  const texts = await Promise.all((await textFiles(folder)).map(async (file) => (await readFile(file, 'utf8')).trim()));
  const author = about.author?.name ?? about.author ?? about.contributors?.[0]?.name ?? 'unknown';
  const declared = `The package has no file with its licence. It declares ${name}. Author: ${author}`;
  return { title: `${about.name} ${about.version} (${name})`, texts: texts.length > 0 ? texts : [declared] };
}

/** Files with licences and notices, also in a folder of licences. */
async function textFiles(folder) {
  const found = (await readdir(folder, { withFileTypes: true })).filter(({ name }) => TEXT.test(name));
  const files = found.map(async (entry) => {
    const path = join(folder, entry.name);
    return entry.isFile() ? [path] : (await readdir(path)).map((name) => join(path, name));
  });
  return (await Promise.all(files)).flat().sort();
}
