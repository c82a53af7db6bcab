// Reads playlists with hls-parser in strict mode: `node validate.mjs FILE...`
//
// Prints one JSON line for each file; the exit code is 1 when one of them was refused, 2 without any file.

import { readFileSync } from 'node:fs';
import hls from 'hls-parser';

hls.setOptions({ strictMode: true });

/** The parsed playlist, or the reason for refusing it. */
function verdict(file) {
  try {
    const playlist = hls.parse(readFileSync(file, 'utf8'));
    return playlist.isMasterPlaylist
      ? { file, ok: true, kind: 'multivariant', version: playlist.version, variants: playlist.variants.length }
      : {
          file,
          ok: true,
          kind: 'media',
          version: playlist.version,
          target: playlist.targetDuration,
          sequence: playlist.mediaSequenceBase ?? 0,
          segments: playlist.segments.length,
          discontinuities: playlist.segments.filter((segment) => segment.discontinuity).length,
          ended: playlist.endlist,
        };
  } catch (error) {
    return { file, ok: false, error: error.message };
  }
}

const files = process.argv.slice(2);
const verdicts = files.map(verdict);
for (const line of verdicts) {
  console.log(JSON.stringify(line));
}
if (files.length === 0) {
  console.error('usage: node validate.mjs FILE...');
}
process.exitCode = files.length === 0 ? 2 : Number(verdicts.some((line) => !line.ok));
