// The browser's native player, where Media Source is missing (iPhones). It reports little, so the reason for a stall is found by
// fetching the playlists separately.

import type { End, Engine } from './engine';
import type { Media } from './options';
import { SignalMonitor } from './signal';
import { listed, look } from './source';
import { Still } from './still';

/** Interval of checks for stalled playback. */
const LOOK_MS = 4_000;
/** Chrome's native player refuses a playlist with too few segments: delay and number of retries. */
const START_MS = 1_000;
const STARTS_MAX = 40;

export function native(video: HTMLVideoElement, { index, kind }: Media, from: number): Engine {
  const watch = new AbortController();
  const monitor = new SignalMonitor();
  let [looking, starting, starts] = [0, 0, 0];
  const isRecording = kind !== 'stream';
  /** Whether playback was requested; a refused playlist pauses the media element. */
  let wanted = false;
  const begin = (): void => {
    video.src = index;
    if (from > 0) {
      video.currentTime = from;
    }
  };
  const ended = new Promise<End>((resolve) => {
    const again = async (): Promise<void> => {
      if ((await look(index)) !== 'live') {
        resolve('lost');
      } else if (!watch.signal.aborted) {
        begin();
        if (wanted) {
          video.play().catch(() => undefined);
        }
      }
    };
    const failed = (): void => {
      starts += 1;
      if (video.currentTime > 0 || starts > STARTS_MAX) {
        // The player gives no reason; the index is fetched next.
        resolve(monitor.signal === 'over' && !isRecording ? 'over' : 'lost');
      } else {
        starting = setTimeout(() => void again(), START_MS);
      }
    };
    video.addEventListener('play', () => (wanted = true), { signal: watch.signal });
    video.addEventListener('ended', () => resolve('over'), { signal: watch.signal });
    video.addEventListener('error', failed, { signal: watch.signal });
    const still = new Still(isRecording);
    let place = -1;
    looking = setInterval(async () => {
      const stands = !video.paused && video.currentTime === place;
      place = video.currentTime;
      if (stands) {
        const found = await look(index);
        const said = found === 'live' ? await listed(index) : null;
        if (found === 'offline') {
          // The player still plays the rest.
          monitor.signal = 'over';
        } else if (found !== 'live') {
          resolve('lost');
        } else if (said) {
          monitor.update(said, performance.now() / 1000);
        }
      } else if (monitor.signal === 'away') {
        monitor.signal = 'on';
      }
      const end = still.look(video, monitor.signal, performance.now());
      if (end) {
        resolve(end);
      }
    }, LOOK_MS);
  });
  begin();
  return {
    timeline() {
      const last = video.seekable.length - 1;
      return last < 0 ? null : { start: video.seekable.start(0), live: video.seekable.end(last) };
    },
    // Players without Media Source are Apple's, which alone have this method.
    shownAt() {
      const start = (video as { getStartDate?: () => Date }).getStartDate?.().getTime() ?? NaN;
      return Number.isNaN(start) ? null : start + video.currentTime * 1000;
    },
    signal: () => monitor.signal,
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
