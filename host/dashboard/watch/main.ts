// The player page: checks whether the stream is live, plays it, and restarts after every end that a retry can fix.

import { begin, control, wake } from './controls';
import { engine, prepare, type End, type Engine } from './engine';
import { options, reloadAt, type Options } from './options';
import { flag, kind, notice, page, playing } from './page';
import { look, pause, viewers, wait } from './source';
import type { Reason } from './text';

/** An engine that ended sooner than this is not restarted at once. */
const SHORT_LIFE_MS = 5_000;

/** Interval of viewer count requests. */
const VIEWERS_MS = 15_000;
/** Longest delay from the start of playback to the first viewer count request. */
const VIEWERS_FIRST_MS = 1_000;

/** Delay before a page that cannot load its script reloads itself. */
const RELOAD_MS = 5_000;

/** Reasons that no retry can fix. */
const FINAL: ReadonlySet<Reason> = new Set<Reason>(['forbidden', 'broken', 'unsupported', 'no-key']);

/** Resolves with whether the viewer pressed the large button within `ms`. */
async function pressed(ms: number): Promise<boolean> {
  const listening = new AbortController();
  const press = new Promise<boolean>((resolve) =>
    page.start.addEventListener('click', () => resolve(true), { signal: listening.signal }),
  );
  const answer = await Promise.race([press, wait(ms).then(() => false)]);
  listening.abort();
  return answer;
}

/** Where playback begins, as in the options, and whether it waits for the viewer there. */
interface Place {
  from: number;
  paused: boolean;
}

/** Plays until the engine ends; also returns where that was, and whether the viewer had paused. */
async function play(settings: Options, { from, paused: waits }: Place): Promise<Place & { end: End }> {
  let running: Engine;
  try {
    running = await engine(page.video, settings, from);
  } catch {
    // The service responds but does not have the script: this page is of an earlier version.
    await wait(RELOAD_MS);
    location.reload();
    return { end: 'lost', from, paused: false };
  }
  control(running);
  const shown = new AbortController();
  let refused = false;
  page.video.addEventListener('loadeddata', () => refused || playing(), { signal: shown.signal });
  void (waits ? Promise.resolve(true) : startPlayback()).then((plays) => {
    if (plays || shown.signal.aborted) {
      return;
    }
    // The browser requires a user gesture even for muted video.
    refused = true;
    notice('ready');
    const press = (): void => {
      refused = false;
      page.video.play().then(playing, () => undefined);
    };
    page.start.addEventListener('click', press, { signal: shown.signal });
  });
  const end = await running.ended;
  const paused = page.video.paused && !page.video.ended;
  // Before the first frame the element is at 0.
  const reached = page.video.currentTime || from;
  shown.abort();
  control(null);
  running.stop();
  return { end, from: reached, paused: paused && !refused };
}

/** Shows the newest frame behind the large button and stops loading; returns a function that removes it. */
function poster(settings: Options): () => void {
  const shown = new AbortController();
  const loading = engine(page.video, settings, settings.from);
  loading.then(
    (running) => {
      const loaded = (): void => {
        running.hold();
        flag('poster', true);
      };
      page.video.addEventListener('loadeddata', loaded, { signal: shown.signal, once: true });
      shown.signal.addEventListener('abort', () => running.stop());
      if (shown.signal.aborted) {
        running.stop();
      }
    },
    // The page is reloaded when the viewer wants to play.
    () => undefined,
  );
  return () => {
    shown.abort();
    flag('poster', false);
  };
}

/** Starts playback, muted if the browser requires a user gesture for audio. Returns whether playback is allowed. */
async function startPlayback(): Promise<boolean> {
  const { muted } = page.video;
  const plays = (): Promise<boolean> =>
    page.video.play().then(
      () => true,
      // Other errors mean that the source changed or that the viewer paused.
      (error: unknown) => !(error instanceof DOMException && error.name === 'NotAllowedError'),
    );
  if (await plays()) {
    return true;
  }
  page.video.muted = true;
  const silent = await plays();
  if (silent) {
    flag('silenced', !muted);
  } else {
    page.video.muted = muted;
  }
  return silent;
}

/** Shows the viewer count during playback. */
async function count(address: string): Promise<void> {
  for (;;) {
    const isShown = page.player.dataset['state'] === 'playing' && !document.hidden;
    if (isShown) {
      const watching = await viewers(address);
      page.viewers.hidden = watching === null;
      page.viewers.textContent = `${watching} watching`;
    }
    await wait(isShown ? VIEWERS_MS : VIEWERS_FIRST_MS);
  }
}

async function run(settings: Options): Promise<void> {
  let wanted = settings.autoplay;
  let tries = 0;
  let shown = 'starting' as Reason;
  const isStream = settings.kind === 'stream';
  let place: Place = { from: settings.from, paused: false };
  let cover: (() => void) | null = null;
  const uncover = (): void => {
    cover?.();
    cover = null;
  };
  const show = (reason: Reason): void => {
    if (reason !== shown || page.player.dataset['state'] === 'playing') {
      notice(reason);
    }
    shown = reason;
  };
  while (!FINAL.has(shown)) {
    const found = await look(settings.index, settings.kind === 'clip' ? 'HEAD' : 'GET');
    if (found !== 'live') {
      uncover();
      // An ended stream is also offline: keep showing that it has ended.
      show(found === 'offline' && shown === 'over' ? 'over' : found);
      await wait(pause(found, tries));
      tries += 1;
      continue;
    }
    if (!wanted) {
      show('ready');
      cover ??= poster(settings);
      wanted = await pressed(pause('ready', 0));
      if (!wanted) {
        // The stream may have ended in the meantime.
        continue;
      }
      show('starting');
    }
    uncover();
    const began = performance.now();
    const { end, ...reached } = await play(settings, place);
    place = isStream || end === 'over' ? { from: 0, paused: false } : reached;
    // After a pause by the viewer, the next stream starts only on request.
    wanted = !(end === 'over' && (reached.paused || !isStream));
    // The reason is not known yet: the index is fetched next. It may be there while the store with the media is not.
    show(end === 'lost' && isStream ? 'starting' : end);
    tries = performance.now() - began > SHORT_LIFE_MS ? 0 : tries + 1;
    if (end === 'refused') {
      await wait(pause(end, 0));
    } else if (tries > 0) {
      await wait(pause('lost', tries));
    }
  }
}

page.retry.addEventListener('click', () => location.reload());
const settings = options(location, kind());
begin(settings.muted);
wake();
// The service has already shown what is wrong with the URL.
if (page.player.dataset['state'] !== 'problem') {
  if (settings.key === '') {
    notice('no-key');
  } else {
    prepare();
    // A recording that is watched during its upload comes from its store afterwards, which the policy of an earlier page forbids.
    document.addEventListener('securitypolicyviolation', () => {
      if (settings.kind !== 'stream') {
        reloadAt(page.video.currentTime);
      }
    });
    void run(settings);
    if (settings.viewers !== '') {
      void count(settings.viewers);
    }
  }
}
