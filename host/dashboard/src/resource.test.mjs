// Tests of lists that are read page by page.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { load } from './testing.mjs';

/** A page of items with these ids. */
const page = (ids, next = null) => ({ items: ids.map((id) => ({ id })), next });

const ids = ({ items }) => items.map(({ id }) => id);

test('a new first page neither repeats nor loses items of later pages', async () => {
  const { joined } = await load('resource');
  const read = page([9, 8, 7, 6, 5, 4], 'after 4');
  const cases = [
    ['nothing has changed', page([9, 8, 7], 'after 7'), [9, 8, 7, 6, 5, 4], 'after 4'],
    ['new items', page([11, 10, 9], 'after 9'), [11, 10, 9, 8, 7, 6, 5, 4], 'after 4'],
    ['an item has gone', page([9, 7, 6], 'after 6'), [9, 7, 6, 5, 4], 'after 4'],
    ['more new items than a page', page([15, 14, 13], 'after 13'), [15, 14, 13], 'after 13'],
    ['one page is left', page([9, 8]), [9, 8], null],
    ['nothing is left', page([]), [], null],
  ];
  for (const [name, first, wanted, next] of cases) {
    const list = joined(first, read);
    assert.deepEqual([ids(list), list.next], [wanted, next], name);
  }
  assert.deepEqual(joined(page([2, 1]), null), page([2, 1]));
});

test('pages are read on from a list, or from the first page', async () => {
  const { readPages } = await load('resource');
  const service = { first: page([6, 5], 'b'), b: page([4, 3], 'c'), c: page([2, 1]) };
  const asked = [];
  const answer = async (cursor) => {
    asked.push(cursor);
    return service[cursor ?? 'first'];
  };
  assert.deepEqual(await readPages(answer, page([7, 6, 5], 'b'), 1), page([7, 6, 5, 4, 3], 'c'));
  assert.deepEqual(asked.splice(0), ['b']);
  assert.deepEqual(await readPages(answer, null, 5), page([6, 5, 4, 3, 2, 1]));
  assert.deepEqual(asked, [undefined, 'b', 'c']);
});
