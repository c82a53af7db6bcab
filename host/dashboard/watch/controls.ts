// Bar, buttons and keys: input of the viewer, and display of the position.

import type { Engine, Timeline } from './engine';
import { storeAudio, storeNear, storedAudio } from './options';
import { flag, kind, page, say } from './page';
import type { Signal } from './signal';
import { AWAY, clock, spoken } from './text';

/** A viewer this close to the live edge counts as live: the player itself does not stay closer. */
const LIVE_SLACK_SECS = 4;
/** Shortest DVR window with a seek bar. */
const WINDOW_SECS_MIN = 12;
/** Distance to the oldest media, which expires while it is fetched. */
const OLDEST_MARGIN_SECS = 1;
const SMALL_STEP_SECS = 5;
const LARGE_STEP_SECS = 10;
const VOLUME_STEP = 0.1;
/** Controls are hidden after this time without input. */
const IDLE_MS = 3_000;
const REFRESH_MS = 250;

/** Text for the live position. */
const SIGNALS: Record<Signal, { word: string; label: string; go: string; said: string }> = {
  on: { word: 'Live', label: 'You are live', go: 'Go live', said: 'Playing' },
  away: { word: 'Waiting', label: AWAY, go: 'To the end', said: AWAY },
  over: { word: 'Ended', label: 'The stream has ended', go: 'To the end', said: 'The stream has ended. What is left plays on.' },
};

const { video, seek } = page;
/** Positions count from the beginning, and there is no live edge. */
const isRecording = (): boolean => kind() !== 'stream';

let engine: Engine | null = null;
let signal: Signal = 'on';
let dragging = false;
let idle = 0;

/** The engine that the controls act on; `null` while nothing plays. */
export function control(now: Engine | null): void {
  engine = now;
  signal = 'on';
  page.player.dataset['signal'] = 'on';
  refresh();
}

/** Attaches all event handlers; call once. */
export function begin(muted: boolean): void {
  const stored = storedAudio();
  video.volume = stored.volume;
  video.muted = muted || stored.muted;
  page.play.addEventListener('click', toggle);
  page.mute.addEventListener('click', toggleMute);
  page.unmute.addEventListener('click', toggleMute);
  page.live.addEventListener('click', goLive);
  page.help.addEventListener('click', () => page.keys.showModal());
  page.full.addEventListener('click', toggleFull);
  page.pip.addEventListener('click', togglePicture);
  page.latency.addEventListener('click', toggleLatency);
  page.pip.hidden = !document.pictureInPictureEnabled;
  flag('framed', self !== top);
  showFull();
  video.addEventListener('loadedmetadata', showFull);
  video.addEventListener('resize', shape);
  page.volume.addEventListener('input', () => setVolume(Number(page.volume.value) / 100));
  bar();
  video.addEventListener('volumechange', showAudio);
  for (const event of ['play', 'pause', 'playing', 'waiting', 'seeking', 'seeked', 'resize', 'ended', 'emptied']) {
    video.addEventListener(event, refresh);
  }
  document.addEventListener('keydown', pressed);
  document.addEventListener('fullscreenchange', () => {
    page.full.setAttribute('aria-label', document.fullscreenElement ? 'Leave full screen' : 'Full screen');
  });
  pointers();
  showAudio();
  setInterval(refresh, REFRESH_MS);
}

function bar(): void {
  seek.addEventListener('input', () => {
    dragging = true;
    tip(Number(seek.value));
    fill(seek);
  });
  seek.addEventListener('change', () => {
    dragging = false;
    const timeline = engine?.timeline();
    if (timeline) {
      to(timeline.live - (Number(seek.max) - Number(seek.value)));
    }
    page.tip.dataset['shown'] = 'no';
  });
  seek.addEventListener('pointermove', (event) => {
    const box = seek.getBoundingClientRect();
    const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    tip(share * Number(seek.max));
  });
  seek.addEventListener('pointerleave', () => {
    page.tip.dataset['shown'] = 'no';
  });
}

/** Shows above the bar how far back a position is. */
function tip(value: number): void {
  const most = Number(seek.max);
  const share = most > 0 ? value / most : 1;
  const behind = most - value;
  page.tip.textContent = isRecording() ? clock(value) : behind < LIVE_SLACK_SECS ? 'Live' : `−${clock(behind)}`;
  page.tip.style.left = `clamp(2rem, ${share * 100}%, 100% - 2rem)`;
  page.tip.dataset['shown'] = 'yes';
}

function pointers(): void {
  page.player.addEventListener('pointermove', (event) => {
    if (event.pointerType === 'mouse') {
      wake();
    }
  });
  page.player.addEventListener('focusin', wake);
  video.addEventListener('click', (event) => {
    // The first touch only shows the controls.
    if (event instanceof PointerEvent && event.pointerType !== 'mouse') {
      wake();
    } else {
      toggle();
    }
  });
}

/** Shows the controls, and hides them after a time without input. */
export function wake(): void {
  flag('idle', false);
  clearTimeout(idle);
  idle = setTimeout(() => flag('idle', !video.paused && !dragging), IDLE_MS);
}

/** Plays or pauses. */
function toggle(): void {
  if (video.paused) {
    video.play().catch(() => undefined);
  } else {
    video.pause();
  }
  wake();
}

function toggleMute(): void {
  video.muted = !video.muted;
  if (!video.muted && video.volume === 0) {
    video.volume = VOLUME_STEP;
  }
  flag('silenced', false);
  say(video.muted ? 'Sound off' : 'Sound on');
  storeAudio({ volume: video.volume, muted: video.muted });
  wake();
}

function setVolume(volume: number): void {
  video.volume = Math.min(Math.max(volume, 0), 1);
  video.muted = video.volume === 0;
  flag('silenced', false);
  storeAudio({ volume: video.volume, muted: video.muted });
  wake();
}

function showAudio(): void {
  const silent = video.muted || video.volume === 0;
  flag('muted', silent);
  page.mute.setAttribute('aria-label', silent ? 'Sound on' : 'Mute');
  page.volume.value = String(silent ? 0 : Math.round(video.volume * 100));
  page.volume.setAttribute('aria-valuetext', silent ? 'off' : `${page.volume.value} percent`);
  fill(page.volume);
}

/** Full screen on iPhones, which lack the standard API: only the video element, once it has video. */
type FullVideo = HTMLVideoElement & { webkitSupportsFullscreen?: boolean; webkitEnterFullscreen?: () => void };

function showFull(): void {
  page.full.hidden = !document.fullscreenEnabled && (video as FullVideo).webkitSupportsFullscreen !== true;
}

function toggleFull(): void {
  if (document.fullscreenElement) {
    document.exitFullscreen().catch(() => undefined);
  } else if (document.fullscreenEnabled) {
    page.player.requestFullscreen().catch(() => say('This page may not fill the screen'));
  } else {
    (video as FullVideo).webkitEnterFullscreen?.();
  }
}

function togglePicture(): void {
  if (page.pip.hidden) {
    return;
  }
  const done = document.pictureInPictureElement ? document.exitPictureInPicture() : video.requestPictureInPicture();
  done.catch(() => say('Picture in picture is not available in this browser now'));
}

/** Switches between low latency and a larger buffer. */
function toggleLatency(): void {
  const near = page.latency.getAttribute('aria-pressed') !== 'true';
  storeNear(near);
  engine?.near(near);
  say(near ? 'Low latency' : 'Normal latency');
  refresh();
  goLive();
}

/** In portrait orientation the video keeps its aspect ratio. */
function shape(): void {
  if (video.videoWidth > 0) {
    page.player.style.setProperty('--shape', `${video.videoWidth} / ${video.videoHeight}`);
  }
}

/** Seeks to a time of the media clock, within the window, and announces the position. */
function to(place: number): void {
  const timeline = engine?.timeline();
  if (!timeline) {
    return;
  }
  const margin = isRecording() ? 0 : OLDEST_MARGIN_SECS;
  const oldest = Math.min(timeline.start + margin, timeline.live);
  video.currentTime = Math.min(Math.max(place, oldest), timeline.live);
  const behind = timeline.live - video.currentTime;
  if (isRecording()) {
    say(`${spoken(video.currentTime - timeline.start)} of ${spoken(timeline.live - timeline.start)}`);
  } else {
    say(behind < LIVE_SLACK_SECS ? SIGNALS[signal].label : `${spoken(behind)} behind live`);
  }
  refresh();
  wake();
}

function goLive(): void {
  const timeline = engine?.timeline();
  // A viewer at the very end must not see the last seconds again.
  if (timeline && video.currentTime < timeline.live) {
    to(Infinity);
  }
  if (video.paused) {
    video.play().catch(() => undefined);
  }
}

/** Keys that work wherever the focus is, besides those of the focused control itself. */
const KEYS: Record<string, () => void> = {
  k: toggle,
  m: toggleMute,
  f: toggleFull,
  p: togglePicture,
  j: () => to(video.currentTime - LARGE_STEP_SECS),
  l: () => to(video.currentTime + LARGE_STEP_SECS),
  ArrowLeft: () => to(video.currentTime - SMALL_STEP_SECS),
  ArrowRight: () => to(video.currentTime + SMALL_STEP_SECS),
  ArrowUp: () => setVolume((video.muted ? 0 : video.volume) + VOLUME_STEP),
  ArrowDown: () => setVolume((video.muted ? 0 : video.volume) - VOLUME_STEP),
  Home: () => to(-Infinity),
  End: goLive,
  '?': () => page.keys.showModal(),
  ' ': toggle,
};

function pressed(event: KeyboardEvent): void {
  const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  const modified = event.ctrlKey || event.altKey || event.metaKey;
  const state = page.player.dataset['state'];
  if (!action || modified || page.keys.open) {
    return;
  }
  if (state === 'ready' && action === toggle && event.target !== page.start) {
    event.preventDefault();
    page.start.click();
  }
  if (state !== 'playing') {
    return;
  }
  // The space bar presses a focused button, and the arrow keys move a focused volume slider.
  const own = event.target instanceof HTMLButtonElement ? [' '] : event.target === page.volume ? ['Arrow', 'Home', 'End'] : [];
  if (own.some((prefix) => event.key.startsWith(prefix))) {
    wake();
    return;
  }
  event.preventDefault();
  action();
  wake();
}

function refresh(): void {
  flag('paused', video.paused);
  page.play.setAttribute('aria-label', video.paused ? 'Play' : 'Pause');
  flag('waiting', !video.paused && (video.readyState < HTMLMediaElement.HAVE_FUTURE_DATA || video.seeking));
  // Known only when there is video.
  if (video.readyState >= HTMLMediaElement.HAVE_CURRENT_DATA) {
    page.player.dataset['picture'] = video.videoWidth > 0 ? 'some' : 'none';
  }
  const near = engine?.isNear() ?? null;
  page.latency.hidden = near === null;
  page.latency.setAttribute('aria-pressed', String(near === true));
  showSignal(engine?.signal() ?? 'on');
  place(engine?.timeline() ?? { start: video.currentTime, live: video.currentTime });
}

/** Shows whether the encoder sends media, and announces changes. */
function showSignal(now: Signal): void {
  if (now !== signal && !isRecording()) {
    signal = now;
    page.player.dataset['signal'] = now;
    say(SIGNALS[now].said);
  }
}

/** Shows the position of the viewer. Without a DVR window (as in Chrome's native player) it is live. */
function place({ start, live }: Timeline): void {
  if (isRecording()) {
    placeRecording({ start, live });
    return;
  }
  const span = Math.max(live - start, 0);
  const behind = Math.max(live - video.currentTime, 0);
  const isLive = behind < LIVE_SLACK_SECS;
  page.bar.hidden = span < WINDOW_SECS_MIN;
  page.player.dataset['edge'] = isLive ? 'live' : 'behind';
  const { word, label, go } = SIGNALS[signal];
  page.liveWord.textContent = isLive ? word : go;
  page.live.setAttribute('aria-label', isLive ? label : go);
  const text = isLive ? '' : `−${clock(behind)}`;
  if (page.behind.textContent !== text) {
    page.behind.textContent = text;
    page.behind.title = isLive ? '' : `${spoken(behind)} behind live`;
  }
  if (dragging) {
    return;
  }
  seek.max = String(Math.round(span));
  seek.value = String(isLive ? Math.round(span) : Math.round(Math.max(span - behind, 0)));
  seek.setAttribute('aria-valuetext', isLive ? 'Live' : `${spoken(behind)} behind live`);
  fill(seek);
}

/** The same in a recording. */
function placeRecording({ start, live }: Timeline): void {
  const span = Math.max(live - start, 0);
  const at = Math.min(Math.max(video.currentTime - start, 0), span);
  page.bar.hidden = span <= 0;
  page.live.hidden = true;
  page.player.dataset['edge'] = 'behind';
  page.behind.textContent = `${clock(at)} / ${clock(span)}`;
  if (dragging) {
    return;
  }
  seek.max = String(Math.round(span));
  seek.value = String(Math.round(at));
  seek.setAttribute('aria-valuetext', `${spoken(at)} of ${spoken(span)}`);
  fill(seek);
}

/** Sets the filled share of a range for the style sheet. */
function fill(range: HTMLInputElement): void {
  const most = Number(range.max);
  range.style.setProperty('--at', `${most > 0 ? (Number(range.value) / most) * 100 : 100}%`);
}
