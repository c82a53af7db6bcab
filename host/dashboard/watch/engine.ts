// What plays: hls.js wherever it can, as it knows the whole window; else the browser's own player (iPhones).

import type Hls from 'hls.js/light';
import type { ErrorData, HlsConfig, LoadPolicy } from 'hls.js/light';

/** Where in the stream one can be, in seconds of the media element's clock. */
export interface Timeline {
  /** Oldest moment that is still there. */
  start: number;
  /** Where a viewer who follows the stream is. */
  live: number;
}

/** Why it stopped. */
export type End = 'over' | 'lost' | 'refused' | 'forbidden' | 'broken' | 'unsupported';

export interface Engine {
  timeline(): Timeline | null;
  /** Resolves when it cannot go on by itself. */
  ended: Promise<End>;
  /** Lets go of the media element. */
  stop(): void;
}

/** How often a media error is mended before it is one. */
const MENDS_MAX = 3;

/** A restart of the service takes seconds: what fails is asked for again for about as long as the buffer lasts. A 4xx is
    final for hls.js at once; then the index says what is the matter. */
function patient(firstByteMs: number, wholeMs: number): LoadPolicy {
  return {
    default: {
      maxTimeToFirstByteMs: firstByteMs,
      maxLoadTimeMs: wholeMs,
      timeoutRetry: { maxNumRetry: 3, retryDelayMs: 0, maxRetryDelayMs: 0 },
      errorRetry: { maxNumRetry: 6, retryDelayMs: 500, maxRetryDelayMs: 4_000, backoff: 'exponential' },
    },
  };
}

/** Tells this player from others behind the same address, for the count of viewers; a new one for each visit. */
const PLAYER = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** Sends it with playlists. A frame that was cut off from its origin is a stranger there, and may not. */
function name(request: XMLHttpRequest, address: string): void {
  if (self.origin === 'null' || !address.includes('.m3u8')) {
    return;
  }
  if (request.readyState === XMLHttpRequest.UNSENT) {
    request.open('GET', address, true);
  }
  request.setRequestHeader('X-Playback-Session-Id', PLAYER);
}

const CONFIG: Partial<HlsConfig> = {
  xhrSetup: name,
  // A worker would be a script from a blob, which the page's policy forbids; fragmented MP4 needs no remuxing.
  enableWorker: false,
  lowLatencyMode: true,
  // Slightly faster after a pause of the network; more would be heard.
  maxLiveSyncPlaybackRate: 1.05,
  liveDurationInfinity: true,
  // What was seen can be fetched again: memory stays flat over hours.
  backBufferLength: 60,
  maxBufferLength: 20,
  maxMaxBufferLength: 60,
  maxBufferSize: 60_000_000,
  manifestLoadPolicy: patient(10_000, 15_000),
  // A blocking reload is answered within three target durations.
  playlistLoadPolicy: patient(35_000, 40_000),
  fragLoadPolicy: patient(10_000, 60_000),
};

/** Loads hls.js before it is needed: a page may wait for days, and the service be another version by then. */
export function prepare(): void {
  import('hls.js/light').catch(() => undefined);
}

/** Starts to play `index`; fails when hls.js cannot be loaded. */
export async function engine(video: HTMLVideoElement, index: string): Promise<Engine> {
  const hls = await import('hls.js/light');
  if (hls.default.isSupported()) {
    return withHls(hls.default, video, index);
  }
  if (video.canPlayType('application/vnd.apple.mpegurl')) {
    return native(video, index);
  }
  return { timeline: () => null, ended: Promise.resolve('unsupported'), stop: () => undefined };
}

function withHls(Player: typeof Hls, video: HTMLVideoElement, index: string): Engine {
  const hls = new Player(CONFIG);
  const watch = new AbortController();
  let mends = 0;
  const ended = new Promise<End>((resolve) => {
    video.addEventListener('ended', () => resolve('over'), { signal: watch.signal });
    hls.on(Player.Events.ERROR, (_, data) => {
      if (!data.fatal) {
        return;
      }
      const unknown = data.details === Player.ErrorDetails.MANIFEST_INCOMPATIBLE_CODECS_ERROR;
      if (data.type === Player.ErrorTypes.MEDIA_ERROR && !unknown && mends < MENDS_MAX) {
        mends += 1;
        hls.recoverMediaError();
        return;
      }
      resolve(endOf(Player, data));
    });
  });
  hls.loadSource(index);
  hls.attachMedia(video);
  return {
    timeline() {
      const details = hls.latestLevelDetails;
      if (!details || details.fragments.length === 0) {
        return null;
      }
      // After the end the edge is where one can go, not a few segments before it.
      const live = details.live ? (hls.liveSyncPosition ?? details.edge) : details.edge;
      return { start: details.fragmentStart, live: Math.max(live, details.fragmentStart) };
    },
    ended,
    stop() {
      watch.abort();
      hls.destroy();
    },
  };
}

function endOf(Player: typeof Hls, data: ErrorData): End {
  const status = data.response?.code;
  if (status === 401 || status === 400) {
    return 'refused';
  }
  if (status === 403) {
    return 'forbidden';
  }
  return data.type === Player.ErrorTypes.NETWORK_ERROR ? 'lost' : 'broken';
}

function native(video: HTMLVideoElement, index: string): Engine {
  const watch = new AbortController();
  const ended = new Promise<End>((resolve) => {
    video.addEventListener('ended', () => resolve('over'), { signal: watch.signal });
    // It does not say why; the index is asked next.
    video.addEventListener('error', () => resolve('lost'), { signal: watch.signal });
  });
  video.src = index;
  return {
    timeline() {
      const last = video.seekable.length - 1;
      return last < 0 ? null : { start: video.seekable.start(0), live: video.seekable.end(last) };
    },
    ended,
    stop() {
      watch.abort();
      video.removeAttribute('src');
      video.load();
    },
  };
}
