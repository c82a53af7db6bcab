// The browser's own player, where there is no Media Source (iPhones). It tells little: what stands still is looked into by
// fetching the playlists once more.

import type { End, Engine } from './engine';
import { Watchman } from './signal';
import { listed, look } from './source';

/** How often to see whether the picture goes on. */
const LOOK_MS = 4_000;
/** It is begun anew when it stands still so many looks long although new media comes. */
const STUCK_LOOKS_MAX = 4;

export function native(video: HTMLVideoElement, index: string): Engine {
  const watch = new AbortController();
  const watchman = new Watchman();
  let looking = 0;
  const ended = new Promise<End>((resolve) => {
    video.addEventListener('ended', () => resolve('over'), { signal: watch.signal });
    // It does not say why; the index is asked next.
    video.addEventListener('error', () => resolve('lost'), { signal: watch.signal });
    let [place, stuck] = [-1, 0];
    looking = setInterval(async () => {
      const stands = !video.paused && video.currentTime === place;
      place = video.currentTime;
      if (!stands) {
        stuck = 0;
        watchman.signal = 'on';
        return;
      }
      if ((await look(index)) !== 'live') {
        resolve('lost');
        return;
      }
      const said = await listed(index);
      if (said) {
        watchman.came(said, performance.now() / 1000);
      }
      stuck = said && watchman.signal === 'on' ? stuck + 1 : 0;
      if (stuck > STUCK_LOOKS_MAX) {
        resolve('lost');
      }
    }, LOOK_MS);
  });
  video.src = index;
  return {
    timeline() {
      const last = video.seekable.length - 1;
      return last < 0 ? null : { start: video.seekable.start(0), live: video.seekable.end(last) };
    },
    signal: () => watchman.signal,
    isNear: () => null,
    near: () => undefined,
    ended,
    hold: () => undefined,
    stop() {
      watch.abort();
      clearInterval(looking);
      video.removeAttribute('src');
      video.load();
    },
  };
}
