// What plays: hls.js wherever it can, as it knows the whole window; else the browser's own player (iPhones).

import type Hls from 'hls.js/light';
import type { ErrorData, HlsConfig, LevelDetails, LoadPolicy } from 'hls.js/light';
import { native } from './native';
import { storedNear } from './options';
import { Watchman, type Listed, type Signal } from './signal';
import { Still } from './still';

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
  /** Whether the streamer sends. */
  signal(): Signal;
  /** Whether it stays as near to live as parts allow; `null` where there is no choice. */
  isNear(): boolean | null;
  /** Chooses that. */
  near(near: boolean): void;
  /** Resolves when it cannot go on by itself. */
  ended: Promise<End>;
  /** Loads nothing more. */
  hold(): void;
  /** Lets go of the media element. */
  stop(): void;
}

/** How often to see whether the picture moves. */
const STILL_LOOK_MS = 1_000;

/** How often a media error is mended before it is one, */
const MENDS_MAX = 3;
/** counted anew when there was none for so long. */
const MENDS_MS = 60_000;

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

/** A 503 to who waits for more says that the streamer sends nothing at present: that is waited for as long as it lasts. */
function whileAway(policy: LoadPolicy): LoadPolicy {
  const { errorRetry } = policy.default;
  if (errorRetry) {
    errorRetry.shouldRetry = (_, __, ___, response, retry) => retry || response?.code === 503;
  }
  return policy;
}

/** Tells this player from others behind the same address, for the count of viewers; a new one for each visit. */
const PLAYER = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** Asks for the first segments of a stream at once: others wait until three are listed, which this player does not need. */
function atOnce(request: XMLHttpRequest, address: string): void {
  request.open('GET', `${address}${address.includes('?') ? '&' : '?'}now=1`, true);
}

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
  // A worker would be a script from a blob, which the page's policy forbids; fragmented MP4 needs no remuxing.
  enableWorker: false,
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
  playlistLoadPolicy: whileAway(patient(35_000, 40_000)),
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
  return {
    timeline: () => null,
    signal: () => 'on',
    isNear: () => null,
    near: () => undefined,
    ended: Promise.resolve('unsupported'),
    hold: () => undefined,
    stop: () => undefined,
  };
}

function withHls(Player: typeof Hls, video: HTMLVideoElement, index: string): Engine {
  const begun = (): boolean => video.readyState >= HTMLMediaElement.HAVE_CURRENT_DATA;
  const xhrSetup = (request: XMLHttpRequest, address: string): void => {
    const isSegment = address.split('?')[0]?.endsWith('.m4s');
    (isSegment && !begun() ? atOnce : name)(request, address);
  };
  const hls = new Player({ ...CONFIG, xhrSetup, lowLatencyMode: storedNear() });
  const watch = new AbortController();
  const watchman = new Watchman();
  let mends: number[] = [];
  /** Where it goes on after the source was loaded anew: what is before has the tracks that were. */
  let from = NaN;
  /** The source buffers were made for the tracks that were; only a fresh index says which there are now. */
  const anew = (failed = NaN): void => {
    const plays = !video.paused;
    from = failed;
    hls.detachMedia();
    hls.loadSource(index);
    hls.attachMedia(video);
    if (plays) {
      video.play().catch(() => undefined);
    }
  };
  hls.on(Player.Events.LEVEL_UPDATED, (_, { details }) => {
    const all = details.fragmentHint ? [...details.fragments, details.fragmentHint] : details.fragments;
    const first = all.find(({ sn }) => sn >= from);
    from = NaN;
    if (first) {
      hls.startLoad(first.start);
    }
  });
  let looking = 0;
  const ended = new Promise<End>((resolve) => {
    video.addEventListener('ended', () => resolve('over'), { signal: watch.signal });
    const still = new Still();
    looking = setInterval(() => {
      const end = still.look(video, watchman.signal, performance.now());
      if (end) {
        resolve(end);
      }
    }, STILL_LOOK_MS);
    hls.on(Player.Events.LEVEL_LOADED, (_, { details, networkDetails }) => {
      watchman.came(listed(details, networkDetails), performance.now() / 1000);
    });
    hls.on(Player.Events.ERROR, (_, data) => {
      const status = data.details === Player.ErrorDetails.LEVEL_LOAD_ERROR ? (data.response?.code ?? 0) : 0;
      if (status === 503) {
        watchman.waitedInVain();
      }
      // hls.js plays on for a while with a key that was revoked.
      const isRefused = status >= 400 && status < 500;
      if (!data.fatal && !isRefused) {
        return;
      }
      const now = performance.now();
      const unknown = data.details === Player.ErrorDetails.MANIFEST_INCOMPATIBLE_CODECS_ERROR;
      mends = mends.filter((at) => now - at < MENDS_MS);
      if (data.type === Player.ErrorTypes.MEDIA_ERROR && !unknown && mends.length < MENDS_MAX) {
        mends.push(now);
        if (isOtherTracks(Player, data)) {
          anew(data.chunkMeta?.sn);
        } else {
          hls.recoverMediaError();
        }
      } else if (watchman.signal === 'over' && video.readyState >= HTMLMediaElement.HAVE_FUTURE_DATA) {
        // What is left of it is no longer served, but what was fetched is still there.
        video.addEventListener('waiting', () => resolve('over'), { signal: watch.signal });
      } else {
        resolve(watchman.signal === 'over' ? 'over' : endOf(Player, data));
      }
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
    signal: () => watchman.signal,
    isNear: () => (hls.latestLevelDetails?.partTarget ? hls.lowLatencyMode : null),
    near(near) {
      hls.lowLatencyMode = near;
    },
    ended,
    hold: () => hls.stopLoad(),
    stop() {
      watch.abort();
      clearInterval(looking);
      hls.destroy();
    },
  };
}

/** What a playlist lists; its age by the clock of who sent it, as the viewer's may be wrong. */
function listed(details: LevelDetails, request: unknown): Listed {
  const last = details.fragments.at(-1);
  const sent = request instanceof XMLHttpRequest ? Date.parse(request.getResponseHeader('Date') ?? '') : NaN;
  const end = last?.programDateTime ? last.programDateTime + last.duration * 1000 : NaN;
  const age = (sent - end) / 1000;
  return {
    version: `${details.endSN} ${details.lastPartSn} ${details.lastPartIndex}`,
    live: details.live,
    targetSecs: details.targetduration,
    ageSecs: Number.isFinite(age) ? age : null,
  };
}

/** An encoder may come back with other tracks than it had. */
function isOtherTracks({ ErrorDetails }: typeof Hls, { details }: ErrorData): boolean {
  return (
    details === ErrorDetails.BUFFER_APPEND_ERROR ||
    details === ErrorDetails.BUFFER_ADD_CODEC_ERROR ||
    details === ErrorDetails.BUFFER_INCOMPATIBLE_CODECS_ERROR
  );
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
