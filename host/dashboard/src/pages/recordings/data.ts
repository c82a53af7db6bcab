// Recordings in the cloud archive.

import { api, listed, type Listed, type Schema } from '../../api';
import { usePages, type Pages } from '../../resource';

export type Recording = Schema<'Archive'>;

/** Rows of one page. */
const ROWS = 50;
/** Interval of reads while a recording grows or is uploaded. */
const PROGRESS_MS = 5_000;
/** Entries of a page in which an address is looked for. */
const SIGNED = 100;

/** The recordings, newest first. */
export function useRecordings(): Pages<Recording> {
  const load = (cursor: string | undefined): Promise<Listed<Recording>> =>
    listed(api.GET('/api/archives', { params: { query: { limit: ROWS, ...(cursor ? { cursor } : {}) } } }));
  return usePages('recordings', load, {
    on: ['recording.', 'archive.'],
    every: ({ items }) => (items.some(({ state }) => state === 'recording' || state === 'uploading') ? PROGRESS_MS : undefined),
  });
}

/** The recording with an address that anyone can download from; `null` if it is not listed. The service signs pages of its
 * list, so this reads them up to the one with the recording. */
export async function signed(id: number): Promise<Recording | null> {
  let cursor: string | null | undefined;
  do {
    const query = { sign: true, limit: SIGNED, ...(cursor ? { cursor } : {}) };
    const page: Listed<Recording> = await listed(api.GET('/api/archives', { params: { query } }));
    const found = page.items.find((recording) => recording.id === id);
    if (found) {
      return found;
    }
    cursor = page.next;
  } while (cursor);
  return null;
}
