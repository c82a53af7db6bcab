// Loads a module of the dashboard for tests without a browser.

import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

/** The exports of `name`, such as `router`. */
export async function load(name) {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL(`${name}.ts`, import.meta.url))],
    bundle: true,
    format: 'esm',
    write: false,
    // What the module reads of the page when it starts.
    banner: {
      js: "globalThis.location ??= new URL('http://dashboard.test/'); globalThis.localStorage ??= { getItem: () => null };",
    },
  });
  return import(`data:text/javascript,${encodeURIComponent(outputFiles[0].text)}`);
}
