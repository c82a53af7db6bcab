// The page with the player: it starts a player and records what a viewer would see.
// play.mjs calls the functions of `player` from outside.

/* global Hls */

// A media clock that stands still for longer than this is a stall.
const STALL_MS = 250;
// Interval of checks of the clock.
const WATCH_MS = 50;
// A frame that has not changed for this time counts as still.
const MOVE_LIMIT_MS = 10_000;
// Frames are compared at this size.
const SAMPLE_WIDTH = 64;
const SAMPLE_HEIGHT = 36;
// A source whose frames show their second (`Publish::clock`): bars for the bits, lowest first, white for 1.
const BARS = 12;
const BAR_WIDTH = 5;
const FIRST_BAR = 4;
const WHITE = 128;
// Chromium's own player fails on a live playlist with few segments, before or soon after its first frame. The page retries this
// often, with this pause.
const NATIVE_TRIES = 20;
const NATIVE_PAUSE_MS = 1_000;
// After this many played seconds it counts as a failure.
const NATIVE_STARTED = 1;
// On a busy machine it may stand still where an encoder left (docs/playback.md). After this time the page loads the address again.
const NATIVE_STILL_MS = 10_000;
// Offset into the window for a seek to its oldest second, in seconds, and the accepted distance of the shown frame.
const INTO_WINDOW = 0.5;

const video = document.querySelector('video');
const canvas = Object.assign(document.createElement('canvas'), { width: SAMPLE_WIDTH, height: SAMPLE_HEIGHT });
const drawing = canvas.getContext('2d', { willReadFrequently: true });

const book = {
  startedAt: null,
  firstFrameMs: null,
  frames: 0,
  // Frames that were shown behind a later one, without a seek.
  backward: 0,
  stalls: [],
  resolutions: [],
  // Failed starts of Chromium's own player.
  refusedStarts: 0,
  // How often the page loaded the address again because that player stood still.
  reloads: 0,
  fatal: [],
  minor: {},
  levelUpdates: 0,
  // Seconds behind since the last `wait` began: least and most.
  behind: { min: null, max: null },
  // Least media in the buffer since then, in seconds.
  ahead: null,
  // Greatest delay of this page's own clock: a machine that is too busy stalls every player.
  lagMs: 0,
};
let hls = null;
let clock = { position: 0, since: performance.now(), stalled: false };
let watched = performance.now();

// Seeks are measured by themselves; a clock that stands during one is not a stall.
function watchClock() {
  const now = performance.now();
  const lag = Math.round(now - watched) - WATCH_MS;
  watched = now;
  book.lagMs = Math.max(book.lagMs, lag);
  const stall = book.stalls.at(-1);
  if (stall?.open) {
    stall.lagMs = Math.max(stall.lagMs, lag);
  }
  watchLatency();
  const moving = video.currentTime !== clock.position;
  if (moving || video.seeking || book.firstFrameMs === null || video.paused) {
    if (clock.stalled && moving) {
      const last = book.stalls.at(-1);
      last.ms = Math.round(now - clock.since);
      last.open = false;
    }
    clock = { position: video.currentTime, since: now, stalled: false };
  } else if (now - clock.since > STALL_MS) {
    if (!clock.stalled) {
      clock.stalled = true;
      book.stalls.push({ at: round(video.currentTime), ms: 0, open: true, lagMs: lag });
    }
    book.stalls.at(-1).ms = Math.round(now - clock.since);
  }
}

function watchLatency() {
  const { buffered, currentTime } = video;
  const last = buffered.length - 1;
  if (last >= 0 && !video.seeking) {
    book.ahead = Math.min(book.ahead ?? Infinity, round(buffered.end(last) - currentTime));
  }
  const behind = video.seeking ? null : latency();
  if (behind !== null) {
    book.behind.min = Math.min(book.behind.min ?? behind, behind);
    book.behind.max = Math.max(book.behind.max ?? behind, behind);
  }
}

let shown = -1;
video.addEventListener('seeking', () => {
  shown = -1;
});

function watchFrame(_, { mediaTime }) {
  book.frames += 1;
  book.backward += mediaTime < shown ? 1 : 0;
  shown = mediaTime;
  book.firstFrameMs ??= Math.round(performance.now() - book.startedAt);
  video.requestVideoFrameCallback(watchFrame);
}

video.addEventListener('resize', () => {
  book.resolutions.push({ width: video.videoWidth, height: video.videoHeight, at: round(video.currentTime) });
});
video.addEventListener('error', () => {
  const isStart = hls === null && video.currentTime < NATIVE_STARTED && book.refusedStarts < NATIVE_TRIES;
  if (isStart && video.error.code === MediaError.MEDIA_ERR_SRC_NOT_SUPPORTED) {
    book.refusedStarts += 1;
    setTimeout(() => {
      video.load();
      play();
    }, NATIVE_PAUSE_MS);
    return;
  }
  book.fatal.push(`media element: ${video.error.code} ${video.error.message}`);
});

/** A start that is retried is not a failure. */
function play() {
  video.play().catch((error) => {
    if (error.name !== 'NotSupportedError' || hls !== null) {
      book.fatal.push(`play: ${error.message}`);
    }
  });
}

function startHls(url) {
  // As docs/playback.md recommends it.
  hls = new Hls({ maxBufferHole: 0.5 });
  hls.on(Hls.Events.ERROR, (_, data) => {
    const name = `${data.details}${data.response?.code ? ` ${data.response.code}` : ''}`;
    if (data.fatal) {
      book.fatal.push(name);
    } else {
      book.minor[name] = (book.minor[name] ?? 0) + 1;
    }
  });
  hls.on(Hls.Events.LEVEL_UPDATED, () => {
    book.levelUpdates += 1;
  });
  hls.loadSource(url);
  hls.attachMedia(video);
}

const round = (seconds) => Math.round(seconds * 1000) / 1000;
const ranges = (of) => Array.from({ length: of.length }, (_, at) => [round(of.start(at)), round(of.end(at))]);
const later = (ms) => new Promise((done) => setTimeout(done, ms));
/** The next shown frame: its second, and its position. */
const nextFrame = () =>
  new Promise((done) => {
    video.requestVideoFrameCallback((_, { mediaTime }) => done({ mediaTime: round(mediaTime), second: second() }));
  });

/** The window that hls.js knows. */
function level() {
  const current = hls?.levels?.[Math.max(hls.currentLevel, 0)];
  const details = current?.details;
  return details
    ? {
        live: details.live,
        target: details.targetduration,
        first: details.startSN,
        last: details.endSN,
        window: round(details.totalduration),
        start: round(details.fragmentStart),
        edge: round(details.edge),
        dated: details.hasProgramDateTime,
        codecs: current.codecs,
        width: current.width,
        height: current.height,
      }
    : null;
}

/** Seconds between the shown frame and now, by the dates in the playlist; null without dates. */
function latency() {
  const shown = hls?.playingDate;
  return shown ? round((Date.now() - shown.getTime()) / 1000) : null;
}

/** A small copy of the frame: its brightness, its variation, and its pixels for a comparison. */
function sample() {
  drawing.drawImage(video, 0, 0, SAMPLE_WIDTH, SAMPLE_HEIGHT);
  const { data } = drawing.getImageData(0, 0, SAMPLE_WIDTH, SAMPLE_HEIGHT);
  const grey = [];
  for (let at = 0; at < data.length; at += 4) {
    grey.push((data[at] + data[at + 1] + data[at + 2]) / 3);
  }
  const mean = grey.reduce((sum, value) => sum + value, 0) / grey.length;
  const spread = Math.sqrt(grey.reduce((sum, value) => sum + (value - mean) ** 2, 0) / grey.length);
  return { mean, spread, grey };
}

/** The second that a frame of the source with bars shows. */
function second() {
  const { grey } = sample();
  const middle = (SAMPLE_HEIGHT / 2) * SAMPLE_WIDTH;
  const bits = Array.from({ length: BARS }, (_, bit) => grey[middle + FIRST_BAR + BAR_WIDTH * bit] > WHITE);
  return bits.reduce((sum, isSet, bit) => sum + (isSet ? 2 ** bit : 0), 0);
}

const difference = (one, other) =>
  one.grey.reduce((sum, value, at) => sum + Math.abs(value - other.grey[at]), 0) / one.grey.length;

window.player = {
  /** Starts to play `url`; done when the first frame is shown, or when the player fails. */
  async start(mode, url) {
    book.startedAt = performance.now();
    video.requestVideoFrameCallback(watchFrame);
    if (mode === 'native') {
      video.src = url;
    } else {
      startHls(url);
    }
    play();
    setInterval(watchClock, WATCH_MS);
    while (book.firstFrameMs === null) {
      if (book.fatal.length > 0) {
        throw new Error(book.fatal[0]);
      }
      await later(WATCH_MS / 5);
    }
    return { firstFrameMs: book.firstFrameMs };
  },

  /** Seeks back by seconds; done when the frame of that position is shown. */
  async seek(to) {
    const began = performance.now();
    const seeked = new Promise((done) => video.addEventListener('seeked', done, { once: true }));
    video.currentTime = to;
    await seeked;
    const frame = await nextFrame();
    const seekMs = Math.round(performance.now() - began);
    return { to: round(to), position: round(video.currentTime), seekMs, ...frame, level: level() };
  },

  /** The shown frame, and its window. */
  frame: async () => ({ ...(await nextFrame()), level: level() }),

  /**
   * Seeks to the oldest seekable second, and again when it has left the window before it was shown, because players then jump to
   * another position. `to` is null where a player offers none.
   */
  async oldest() {
    const { seekable } = video;
    for (;;) {
      const start = level()?.start ?? (seekable.length > 0 ? seekable.start(0) : null);
      if (start === null) {
        return { to: null };
      }
      const shown = await player.seek(start + INTO_WINDOW);
      const hasLeft = shown.level && shown.to < shown.level.start;
      if (!hasLeft || Math.abs(shown.mediaTime - shown.to) < INTO_WINDOW) {
        return shown;
      }
    }
  },

  /** Starts a new measurement of the latency. */
  watch() {
    book.behind = { min: null, max: null };
    book.ahead = null;
  },

  position: () => video.currentTime,

  /** Done when the video is `width` wide and `seconds` of it were shown. */
  async resolution(width, seconds) {
    let shown = 0;
    let before = video.currentTime;
    while (video.videoWidth !== width || shown < seconds) {
      if (book.fatal.length > 0) {
        throw new Error(book.fatal[0]);
      }
      if (hls === null && performance.now() - clock.since > NATIVE_STILL_MS) {
        clock.since = performance.now();
        book.reloads += 1;
        video.load();
        play();
      }
      await later(WATCH_MS);
      const step = video.currentTime - before;
      before = video.currentTime;
      // A jump does not count as shown.
      shown = video.videoWidth !== width ? 0 : step > 0 && step < 1 ? shown + step : shown;
    }
  },

  /** The position of a viewer at the live edge. */
  liveEdge: () => hls?.liveSyncPosition ?? video.seekable.end(video.seekable.length - 1),

  /** Loads the same address again, as a site does after an error. */
  reload(url) {
    book.fatal = [];
    hls.stopLoad();
    hls.loadSource(url);
    hls.startLoad(-1);
    video.play().catch((error) => book.fatal.push(`play: ${error.message}`));
  },

  /** Compares two frames at least `ms` apart: whether the video has content, and how much it moved. */
  async pixels(ms) {
    const before = sample();
    let after = before;
    for (let waited = 0; waited < MOVE_LIMIT_MS && difference(before, after) === 0; waited += ms) {
      await later(ms);
      after = sample();
    }
    return { mean: after.mean, spread: after.spread, moved: difference(before, after) };
  },

  state() {
    const quality = video.getVideoPlaybackQuality();
    return {
      ...book,
      engine: hls ? `hls.js ${Hls.version}` : 'native',
      position: round(video.currentTime),
      paused: video.paused,
      width: video.videoWidth,
      height: video.videoHeight,
      decoded: quality.totalVideoFrames,
      dropped: quality.droppedVideoFrames,
      buffered: ranges(video.buffered),
      seekable: ranges(video.seekable),
      latency: latency(),
      level: level(),
    };
  },
};
