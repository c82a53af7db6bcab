// The browser's own player, where there is no Media Source (iPhones). It tells little: why it stands still is looked into by
// fetching the playlists once more.

import type { End, Engine } from './engine';
import { Watchman } from './signal';
import { listed, look } from './source';
import { Still } from './still';

/** How often to see whether the video goes on. */
const LOOK_MS = 4_000;
/** Chrome's own player refuses a playlist that has fewer segments than it wants: it is asked again this soon, and this often. */
const START_MS = 1_000;
const STARTS_MAX = 40;

export function native(video: HTMLVideoElement, index: string): Engine {
  const watch = new AbortController();
  const watchman = new Watchman();
  let [looking, starting, starts] = [0, 0, 0];
  /** It was asked to play; a refused playlist pauses the media element. */
  let wanted = false;
  const ended = new Promise<End>((resolve) => {
    const again = async (): Promise<void> => {
      if ((await look(index)) !== 'live') {
        resolve('lost');
      } else if (!watch.signal.aborted) {
        video.src = index;
        if (wanted) {
          video.play().catch(() => undefined);
        }
      }
    };
    const failed = (): void => {
      starts += 1;
      if (video.currentTime > 0 || starts > STARTS_MAX) {
        // It does not say why; the index is asked next.
        resolve(watchman.signal === 'over' ? 'over' : 'lost');
      } else {
        starting = setTimeout(() => void again(), START_MS);
      }
    };
    video.addEventListener('play', () => (wanted = true), { signal: watch.signal });
    video.addEventListener('ended', () => resolve('over'), { signal: watch.signal });
    video.addEventListener('error', failed, { signal: watch.signal });
    const still = new Still();
    let place = -1;
    looking = setInterval(async () => {
      const stands = !video.paused && video.currentTime === place;
      place = video.currentTime;
      if (stands) {
        const found = await look(index);
        const said = found === 'live' ? await listed(index) : null;
        if (found === 'offline') {
          // The player still fetches and shows the rest.
          watchman.signal = 'over';
        } else if (found !== 'live') {
          resolve('lost');
        } else if (said) {
          watchman.came(said, performance.now() / 1000);
        }
      } else if (watchman.signal === 'away') {
        watchman.signal = 'on';
      }
      const end = still.look(video, watchman.signal, performance.now());
      if (end) {
        resolve(end);
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
      clearTimeout(starting);
      video.removeAttribute('src');
      video.load();
    },
  };
}
