// Recordings in the cloud archive.

import { answer, api, listed, type Listed, type Schema } from '../../api';
import { usePages, useResource, type Pages } from '../../resource';

export type Recording = Schema<'Archive'>;

/** The file without its folders, for titles. */
export function shortName(fileName: string): string {
  return fileName.slice(fileName.lastIndexOf('/') + 1);
}

/** Rows of one page. */
const ROWS = 50;
/** Interval of reads while a recording grows or is uploaded. */
const PROGRESS_MS = 5_000;

/** The recordings, newest first. */
export function useRecordings(): Pages<Recording> {
  const load = (cursor: string | undefined): Promise<Listed<Recording>> =>
    listed(api.GET('/api/archives', { params: { query: { limit: ROWS, ...(cursor ? { cursor } : {}) } } }));
  return usePages('recordings', load, {
    on: ['recording.', 'archive.'],
    every: ({ items }) => (items.some(({ state }) => state === 'recording' || state === 'uploading') ? PROGRESS_MS : undefined),
  });
}

/** A recording of the list as it is now: the addresses of its media work for a day, and a list may be older. */
export function useRecording(listed: Recording): Recording {
  const { id } = listed;
  const load = () => answer(api.GET('/api/archives/{id}', { params: { path: { id } } }));
  const every = ({ state }: Recording) => (state === 'recording' ? PROGRESS_MS : undefined);
  return useResource(`recording ${id}`, load, { every }).data ?? listed;
}

/** The recording with an address that anyone can download from. */
export function signed(id: number): Promise<Recording> {
  return answer(api.GET('/api/archives/{id}', { params: { path: { id }, query: { sign: true } } }));
}
