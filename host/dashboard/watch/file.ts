// The engine for a clip, which is an ordinary file: the browser plays it by itself.

import type { End, Engine } from './engine';
import { hasBytes } from './source';
import { Still } from './still';

/** Interval of checks for stalled playback. */
const LOOK_MS = 1_000;

export function file(video: HTMLVideoElement, address: string, from: number): Engine {
  const watch = new AbortController();
  let looking = 0;
  const ended = new Promise<End>((resolve) => {
    video.addEventListener('ended', () => resolve('over'), { signal: watch.signal });
    const failed = async (): Promise<void> => {
      // The browser reports a refused request and an unknown codec alike.
      const isOdd = video.error?.code === MediaError.MEDIA_ERR_SRC_NOT_SUPPORTED || video.error?.code === MediaError.MEDIA_ERR_DECODE;
      resolve(isOdd && (await hasBytes(address)) ? 'broken' : 'lost');
    };
    video.addEventListener('error', () => void failed(), { signal: watch.signal });
    const still = new Still(true);
    looking = setInterval(() => {
      const end = still.look(video, 'over', performance.now());
      if (end) {
        resolve(end);
      }
    }, LOOK_MS);
  });
  video.src = address;
  video.currentTime = from;
  return {
    timeline: () => (Number.isFinite(video.duration) ? { start: 0, live: video.duration } : null),
    shownAt: () => null,
    signal: () => 'over',
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
