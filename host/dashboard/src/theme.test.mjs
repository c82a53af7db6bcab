// Contrast of the colours in both themes (WCAG 2.2 AA): 4.5 for text, 3 for borders of controls and lines of charts.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

const TEXT = 4.5;
const LINE = 3;

/** Colours on the grounds that they stand on. */
const PAIRS = [
  ['text', ['ground', 'surface', 'sunken', 'accent-ground', 'good-ground', 'busy-ground', 'bad-ground'], TEXT],
  ['muted', ['ground', 'surface', 'sunken'], TEXT],
  ['accent', ['ground', 'surface', 'sunken'], TEXT],
  ['on-accent', ['accent'], TEXT],
  ['good', ['good-ground', 'surface'], TEXT],
  ['busy', ['busy-ground', 'surface', 'ground'], TEXT],
  ['bad', ['bad-ground', 'surface'], TEXT],
  ['control-line', ['ground', 'surface', 'sunken'], LINE],
  ['series-2', ['surface'], LINE],
  ['series-3', ['surface'], LINE],
  ['series-4', ['surface'], LINE],
];

/** Relative luminance of `#rrggbb`. */
function luminance(colour) {
  const [red, green, blue] = [1, 3, 5].map((from) => {
    const part = Number.parseInt(colour.slice(from, from + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((left, right) => left - right);
  return (light + 0.05) / (dark + 0.05);
}

test('colours have enough contrast in both themes', async () => {
  const style = await readFile(new URL('css/theme.css', import.meta.url), 'utf8');
  const colours = [...style.matchAll(/--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/g)];
  const themes = [2, 3].map((index) => Object.fromEntries(colours.map((found) => [found[1], found[index]])));
  const low = [];
  for (const [index, theme] of themes.entries()) {
    for (const [colour, grounds, least] of PAIRS) {
      for (const ground of grounds) {
        const value = contrast(theme[colour], theme[ground]);
        if (value < least) {
          low.push(`${['light', 'dark'][index]}: ${colour} on ${ground}: ${value.toFixed(2)} of ${least}`);
        }
      }
    }
  }
  assert.deepEqual(low, []);
});
