// Clips: parts of streams as files of their own.

import { answer, api, listed, type Listed, type Schema } from '../../api';
import { t } from '../../i18n';
import { usePages, useResource, type Pages } from '../../resource';

export type Clip = Schema<'Clip'>;

/** The title, or a name for a clip without one. */
export function nameOf({ id, title }: Clip): string {
  return title === '' ? t().clips.untitled(id) : title;
}

/** Rows of one page. */
const ROWS = 50;
/** Interval of reads while a clip is made. */
const PROGRESS_MS = 3_000;

/** The clips, newest first. */
export function useClips(): Pages<Clip> {
  const load = (cursor: string | undefined): Promise<Listed<Clip>> =>
    listed(api.GET('/api/clips', { params: { query: { limit: ROWS, ...(cursor ? { cursor } : {}) } } }));
  return usePages('clips', load, {
    on: ['clip.'],
    every: ({ items }) => (items.some(({ state }) => state === 'making') ? PROGRESS_MS : undefined),
  });
}

/** A clip of the list as it is now: the addresses of its media work for a day, and a list may be older. */
export function useClip(listed: Clip): Clip {
  const { id } = listed;
  return useResource(`clip ${id}`, () => answer(api.GET('/api/clips/{id}', { params: { path: { id } } }))).data ?? listed;
}

/** The clip with an address that anyone can download from. */
export function signed(id: number): Promise<Clip> {
  return answer(api.GET('/api/clips/{id}', { params: { path: { id }, query: { sign: true } } }));
}
