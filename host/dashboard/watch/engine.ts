// The player engine: hls.js where supported, because it knows the whole DVR window; otherwise the native player (iPhones).

import type Hls from 'hls.js/light';
import type { ErrorData, HlsConfig, LevelDetails, LoadPolicy } from 'hls.js/light';
import { file } from './file';
import { native } from './native';
import { storedNear, type Media } from './options';
import { SignalMonitor, type Listed, type Signal } from './signal';
import { Still } from './still';

/** The seekable range, in seconds of the media element's clock. */
export interface Timeline {
  /** Oldest available position. */
  start: number;
  /** Position of a viewer at the live edge. */
  live: number;
}

/** Why playback ended. */
export type End = 'over' | 'lost' | 'refused' | 'forbidden' | 'broken' | 'unsupported';

export interface Engine {
  timeline(): Timeline | null;
  /** Wall time of the shown frame, Unix milliseconds; `null` while it is unknown. */
  shownAt(): number | null;
  /** Whether the encoder sends media. */
  signal(): Signal;
  /** Whether the player stays as close to the live edge as parts allow; `null` if there is no choice. */
  isNear(): boolean | null;
  /** Sets the low-latency mode. */
  near(near: boolean): void;
  /** Resolves when the engine cannot recover by itself. */
  ended: Promise<End>;
  /** Stops loading. */
  hold(): void;
  /** Releases the media element. */
  stop(): void;
}

/** Interval of checks for stalled playback. */
const STILL_LOOK_MS = 1_000;

/** Pause before media of a recording is loaded again after hls.js gave up. */
const LOAD_AGAIN_MS = 4_000;

/** Most recoveries from media errors within `RECOVERIES_MS`; further errors end playback. */
const RECOVERIES_MAX = 3;
/** Period in which recoveries are counted. */
const RECOVERIES_MS = 60_000;

/** A restart of the service takes seconds: failed requests are retried for about as long as the buffer lasts. hls.js does
not retry a 4xx; the index then shows the reason. */
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

/** A 503 for a blocking reload means that the encoder sends nothing at the moment: retried without limit. */
function whileAway(policy: LoadPolicy): LoadPolicy {
  const { errorRetry } = policy.default;
  if (errorRetry) {
    errorRetry.shouldRetry = (_, __, ___, response, retry) => retry || response?.code === 503;
  }
  return policy;
}

/** Identifies this player among others with the same address, for the viewer count; new for each visit. */
const PLAYER = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** Sends the player id with playlist requests. A sandboxed frame has an opaque origin and may not send it. */
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
  // Slightly faster after a network interruption; more would be audible.
  maxLiveSyncPlaybackRate: 1.05,
  // Played media can be fetched again: memory stays constant over hours.
  backBufferLength: 60,
  maxBufferLength: 20,
  maxMaxBufferLength: 60,
  maxBufferSize: 60_000_000,
  // Where the encoder changes, the audio may lack 0.15 s; with less hls.js may stand there for good.
  maxBufferHole: 0.5,
  manifestLoadPolicy: patient(10_000, 15_000),
  // A blocking reload is answered within three target durations.
  playlistLoadPolicy: whileAway(patient(35_000, 40_000)),
  fragLoadPolicy: patient(10_000, 60_000),
};

/** Loads hls.js early: a page may wait for days, and the service may be updated in the meantime. */
export function prepare(): void {
  import('hls.js/light').catch(() => undefined);
}

/** Starts playback at `from`, as in the options; fails if hls.js cannot be loaded. */
export async function engine(video: HTMLVideoElement, media: Media, from: number): Promise<Engine> {
  if (media.kind === 'clip') {
    return file(video, media.index, from);
  }
  const hls = await import('hls.js/light');
  if (hls.default.isSupported()) {
    return withHls(hls.default, video, media, from);
  }
  if (video.canPlayType('application/vnd.apple.mpegurl')) {
    return native(video, media, from);
  }
  return {
    timeline: () => null,
    shownAt: () => null,
    signal: () => 'on',
    isNear: () => null,
    near: () => undefined,
    ended: Promise.resolve('unsupported'),
    hold: () => undefined,
    stop: () => undefined,
  };
}

function withHls(Player: typeof Hls, video: HTMLVideoElement, { index, kind }: Media, begin: number): Engine {
  const isRecording = kind === 'recording';
  const hls = new Player({
    ...CONFIG,
    // The controls of a browser need the length of a recording that grows.
    liveDurationInfinity: !isRecording,
    xhrSetup: name,
    lowLatencyMode: storedNear(),
    startPosition: begin > 0 ? begin : -1,
  });
  const watch = new AbortController();
  const monitor = new SignalMonitor();
  let recoveries: number[] = [];
  /** Sequence number to continue from after a reload: earlier segments have the previous tracks. */
  let from = NaN;
  /** Reloads the index: the source buffers belong to the previous tracks, and only the index lists the current ones. */
  const reloadSource = (failed = NaN): void => {
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
  let [looking, loading] = [0, 0];
  const ended = new Promise<End>((resolve) => {
    video.addEventListener('ended', () => resolve('over'), { signal: watch.signal });
    /** Why playback ends when the fetched media has been played; `null` while more is loaded. */
    let rest: End | null = null;
    video.addEventListener('waiting', () => rest && resolve(rest), { signal: watch.signal });
    hls.on(Player.Events.FRAG_LOADED, () => {
      rest = rest === 'lost' ? null : rest;
    });
    const still = new Still(isRecording);
    looking = setInterval(() => {
      const end = still.look(video, monitor.signal, performance.now());
      if (end) {
        resolve(end);
      }
    }, STILL_LOOK_MS);
    hls.on(Player.Events.LEVEL_LOADED, (_, { details, networkDetails }) => {
      monitor.update(listed(details, networkDetails), performance.now() / 1000);
    });
    hls.on(Player.Events.ERROR, (_, data) => {
      const status = data.details === Player.ErrorDetails.LEVEL_LOAD_ERROR ? (data.response?.code ?? 0) : 0;
      if (status === 503) {
        monitor.waitTimedOut();
      }
      // hls.js continues for a while with a revoked key.
      const isRefused = status >= 400 && status < 500;
      if (!data.fatal && !isRefused) {
        return;
      }
      const now = performance.now();
      const unknown = data.details === Player.ErrorDetails.MANIFEST_INCOMPATIBLE_CODECS_ERROR;
      recoveries = recoveries.filter((at) => now - at < RECOVERIES_MS);
      if (data.type === Player.ErrorTypes.MEDIA_ERROR && !unknown && recoveries.length < RECOVERIES_MAX) {
        recoveries.push(now);
        if (isOtherTracks(Player, data)) {
          reloadSource(data.chunkMeta?.sn);
        } else {
          hls.recoverMediaError();
        }
        return;
      }
      const end = isRecording ? endOfRecording(Player, data) : monitor.signal === 'over' ? 'over' : endOf(Player, data);
      const plays = video.readyState >= HTMLMediaElement.HAVE_FUTURE_DATA;
      if (plays && (end === 'over' || (end === 'lost' && isRecording))) {
        // The fetched media can still play.
        rest = end;
        if (end === 'lost') {
          clearTimeout(loading);
          loading = setTimeout(() => hls.startLoad(), LOAD_AGAIN_MS);
        }
      } else {
        resolve(end);
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
      // After the end of the stream, the edge itself is seekable, not only a position a few segments before it.
      const live = details.live ? (hls.liveSyncPosition ?? details.edge) : details.edge;
      return { start: details.fragmentStart, live: Math.max(live, details.fragmentStart) };
    },
    shownAt() {
      const at = video.currentTime;
      const shown = hls.latestLevelDetails?.fragments.filter(({ start }) => start <= at).at(-1);
      return shown?.programDateTime ? shown.programDateTime + (at - shown.start) * 1000 : null;
    },
    signal: () => monitor.signal,
    isNear: () => (hls.latestLevelDetails?.partTarget ? hls.lowLatencyMode : null),
    near(near) {
      hls.lowLatencyMode = near;
    },
    ended,
    hold: () => hls.stopLoad(),
    stop() {
      watch.abort();
      clearInterval(looking);
      clearTimeout(loading);
      hls.destroy();
    },
  };
}

/** Summary of a playlist; its age is by the server's clock, because the viewer's clock may be wrong. */
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

/** Whether the encoder has returned with other tracks. */
function isOtherTracks({ ErrorDetails }: typeof Hls, { details }: ErrorData): boolean {
  return (
    details === ErrorDetails.BUFFER_APPEND_ERROR ||
    details === ErrorDetails.BUFFER_ADD_CODEC_ERROR ||
    details === ErrorDetails.BUFFER_INCOMPATIBLE_CODECS_ERROR
  );
}

/** Media of a recording fails by itself, with its store or an old token: the index shows whether the key is still good. */
function endOfRecording(Player: typeof Hls, data: ErrorData): End {
  return data.frag && data.type === Player.ErrorTypes.NETWORK_ERROR ? 'lost' : endOf(Player, data);
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
