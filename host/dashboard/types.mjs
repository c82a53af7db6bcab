// Writes the types of the API into src/gen/api.d.ts, from the committed API document:
//
//   node types.mjs
//
// Does nothing when the file belongs to the document as it is now.

import { createHash } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import openapiTS, { astToString } from 'openapi-typescript';

const source = new URL('../../openapi/openapi.json', import.meta.url);
const target = new URL('src/gen/api.d.ts', import.meta.url);

export async function writeTypes() {
  const document = await readFile(source);
  const mark = `// Made by types.mjs from openapi.json ${createHash('sha256').update(document).digest('hex')}\n`;
  const present = await readFile(target, 'utf8').catch(() => '');
  if (present.startsWith(mark)) {
    return;
  }
  // A property with a default value may still be absent from a request.
  const ast = await openapiTS(JSON.parse(document), { defaultNonNullable: false });
  await mkdir(new URL('.', target), { recursive: true });
  await writeFile(target, mark + astToString(ast));
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  await writeTypes();
}
