import type { RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { End, Engine } from '../../../watch/engine';
import type { Signal } from '../../../watch/signal';
import { clock } from '../../format';
import { t } from '../../i18n';
import type { StreamDetail } from '../../store';
import { Button, Card, Countdown, Figures, Icon, Note, SelectField } from '../../ui';
import { AddDestination } from './destination_form';
import { useNames } from './names';
import { Poster } from './poster';

/** The player with rewind, for the owner. */
export function Preview({ stream, reload }: { stream: StreamDetail; reload: () => Promise<void> }) {
  const texts = t().preview;
  const names = useNames(stream.destinations);
  const [chosen, choose] = useState<number | null>(null);
  const last = useRef<{ id: number; url: string } | null>(null);
  const offered = stream.playback.filter(({ previewUrl }) => previewUrl !== null);
  const shown = offered.find(({ destinationId }) => destinationId === chosen) ?? offered[0];
  // From its first to its third segment a destination has no address of a preview: the player keeps the one that it has.
  const isKept = stream.destinations.some(({ id, enabled }) => id === last.current?.id && enabled);
  last.current = shown?.previewUrl ? { id: shown.destinationId, url: shown.previewUrl } : isKept ? last.current : null;
  const url = last.current?.url;
  return (
    <Card title={texts.title}>
      {offered.length > 1 && shown && (
        <SelectField
          label={texts.destination}
          value={String(shown.destinationId)}
          options={offered.map(({ destinationId: id }) => [String(id), names.get(id) ?? ''] as const)}
          onChange={(id) => choose(Number(id))}
        />
      )}
      {url ? (
        <>
          <Player key={url} stream={stream} index={localAddress(url)} />
          <p class="help">{texts.limit}</p>
        </>
      ) : (
        <Offline stream={stream} reload={reload} />
      )}
    </Card>
  );
}

/** The address on the host of this page, as the page may load nothing from others. */
function localAddress(address: string): string {
  const { pathname, search } = new URL(address, location.origin);
  return pathname + search;
}

/** Type of the destinations that the preview plays. */
const HOSTED = 'self-hosted';

/** In place of the player: the reason, and the first step. */
function Offline({ stream, reload }: { stream: StreamDetail; reload: () => Promise<void> }) {
  const texts = t().preview;
  const [isAdding, add] = useState(false);
  const hosted = stream.destinations.filter(({ type }) => type === HOSTED);
  const isEnabled = hosted.some(({ enabled }) => enabled);
  return (
    <div class="preview-screen">
      <div class="preview-cover">
        <Icon name="offline" />
        <p>{hosted.length === 0 ? texts.noDestination : isEnabled ? texts.notReady : texts.disabled}</p>
        {hosted.length === 0 && (
          <Button kind="main" icon="add" onClick={() => add(true)}>
            {texts.add}
          </Button>
        )}
      </div>
      {isAdding && <AddDestination stream={stream} chosen={HOSTED} onAdded={reload} onClose={() => add(false)} />}
    </div>
  );
}

/** Why nothing plays after a try. */
type Problem = End | 'offline';

type Phase =
  | { name: 'ready' }
  | { name: 'loading' }
  | { name: 'playing'; engine: Engine }
  /** The next try is at `until`, Unix milliseconds. */
  | { name: 'waiting'; for: 'limit' | 'segment'; until: number }
  | { name: 'problem'; problem: Problem };

/** Wait for the limit if the service does not tell it. */
const LIMIT_MS = 10_000;
/** Wait for the first segment. */
const SEGMENT_MS = 2_000;

/** Asks for the playlist, because the engine does not tell why it is refused. `null`: it can be played. A refused request does not
 * count for the limit. */
async function refusal(index: string): Promise<Phase | null> {
  let response: Response;
  try {
    response = await fetch(index, { cache: 'no-store', credentials: 'omit' });
  } catch {
    return { name: 'problem', problem: 'lost' };
  }
  const retryAfter = response.headers.get('Retry-After');
  if (response.ok) {
    return null;
  }
  if (response.status === 429) {
    return { name: 'waiting', for: 'limit', until: Date.now() + (Number(retryAfter) * 1_000 || LIMIT_MS) };
  }
  if (response.status === 404) {
    return retryAfter === null
      ? { name: 'problem', problem: 'offline' }
      : { name: 'waiting', for: 'segment', until: Date.now() + SEGMENT_MS };
  }
  return { name: 'problem', problem: response.status < 500 ? 'refused' : 'lost' };
}

/** Plays once; tells each phase to `show` until `signal` is aborted. */
async function play(video: HTMLVideoElement, index: string, show: (phase: Phase) => void, signal: AbortSignal): Promise<void> {
  const tell = (phase: Phase): void => {
    if (!signal.aborted) {
      show(phase);
    }
  };
  tell({ name: 'loading' });
  const [refused, watch] = await Promise.all([refusal(index), import('../../../watch/engine').catch(() => null)]);
  if (refused || !watch) {
    tell(refused ?? { name: 'problem', problem: 'lost' });
    return;
  }
  if (signal.aborted) {
    return;
  }
  const engine = await watch.engine(video, { kind: 'stream', index }, 0);
  const stopped = new Promise<null>((resolve) => {
    signal.addEventListener('abort', () => resolve(null));
    if (signal.aborted) {
      resolve(null);
    }
  });
  video.play().catch(() => undefined);
  tell({ name: 'playing', engine });
  const end = await Promise.race([engine.ended, stopped]);
  engine.stop();
  if (end === 'lost' || end === 'refused') {
    tell((await refusal(index)) ?? { name: 'problem', problem: end });
  } else if (end) {
    tell({ name: 'problem', problem: end });
  }
}

interface Playing {
  video: RefObject<HTMLVideoElement | null>;
  phase: Phase;
  start: () => void;
  stop: () => void;
}

function usePlayer(index: string): Playing {
  const video = useRef<HTMLVideoElement>(null);
  const [phase, show] = useState<Phase>({ name: 'ready' });
  /** Number of the try; 0 while the player is not wanted. */
  const [turn, setTurn] = useState(0);
  const start = (): void => setTurn((before) => before + 1);
  useEffect(() => {
    if (turn === 0 || !video.current) {
      show({ name: 'ready' });
      return undefined;
    }
    const running = new AbortController();
    play(video.current, index, show, running.signal).catch(() => show({ name: 'problem', problem: 'lost' }));
    return () => running.abort();
  }, [turn]);
  useEffect(() => {
    if (phase.name !== 'waiting') {
      return undefined;
    }
    const timer = setTimeout(start, Math.max(0, phase.until - Date.now()));
    return () => clearTimeout(timer);
  }, [phase]);
  return { video, phase, start, stop: () => setTurn(0) };
}

function Player({ stream, index }: { stream: StreamDetail; index: string }) {
  const { video, phase, start, stop } = usePlayer(index);
  const now = usePosition(video, phase.name === 'playing' ? phase.engine : null);
  return (
    <div class="stack">
      <div class="preview-screen">
        <video ref={video} muted playsInline aria-label={t().preview.video(stream.label)} />
        {phase.name === 'ready' && <Poster stream={stream} />}
        <Cover phase={phase} hasMedia={now?.hasMedia ?? false} onStart={start} />
      </div>
      {phase.name === 'playing' && now && video.current && <Controls video={video.current} now={now} onStop={stop} />}
    </div>
  );
}

/** Over the video, while nothing plays. */
function Cover({ phase, hasMedia, onStart }: { phase: Phase; hasMedia: boolean; onStart: () => void }) {
  const texts = t().preview;
  switch (phase.name) {
    case 'ready':
      return (
        <div class="preview-cover">
          <Button kind="main" onClick={onStart}>
            {texts.start}
          </Button>
        </div>
      );
    case 'waiting':
      return (
        <div class="preview-cover">
          <Icon name="wait" />
          {phase.for === 'limit' ? (
            <p>
              {texts.limited} <Countdown until={phase.until} />
            </p>
          ) : (
            <p>{texts.notReady}</p>
          )}
        </div>
      );
    case 'problem':
      return (
        <div class="preview-cover">
          <p role="status">{texts.problems[phase.problem]}</p>
          <Button onClick={onStart}>{t().errors.again}</Button>
        </div>
      );
    case 'loading':
    case 'playing':
      return hasMedia ? null : (
        <div class="preview-cover">
          <p>{t().ui.loading}</p>
        </div>
      );
  }
}

interface Position {
  /** Oldest position, position of a viewer at the live edge, newest media and present position, in seconds of the media. */
  start: number;
  live: number;
  edge: number;
  at: number;
  isPaused: boolean;
  isMuted: boolean;
  hasMedia: boolean;
  signal: Signal;
}

/** Interval at which the controls follow the video. */
const FOLLOW_MS = 500;

function usePosition(video: RefObject<HTMLVideoElement | null>, engine: Engine | null): Position | null {
  const [now, setNow] = useState<Position | null>(null);
  useEffect(() => {
    const element = video.current;
    if (!engine || !element) {
      setNow(null);
      return undefined;
    }
    const follow = (): void => setNow(placeOf(element, engine));
    const timer = setInterval(follow, FOLLOW_MS);
    const events = ['play', 'pause', 'seeked', 'volumechange', 'loadeddata'];
    events.forEach((name) => element.addEventListener(name, follow));
    return () => {
      clearInterval(timer);
      events.forEach((name) => element.removeEventListener(name, follow));
    };
  }, [engine]);
  return now;
}

function placeOf(video: HTMLVideoElement, engine: Engine): Position {
  const { currentTime: at, paused, muted, readyState, seekable } = video;
  const { start, live } = engine.timeline() ?? { start: at, live: at };
  const edge = seekable.length > 0 ? seekable.end(seekable.length - 1) : live;
  return {
    start,
    live,
    edge: Number.isFinite(edge) ? Math.max(edge, live) : live,
    at,
    isPaused: paused,
    isMuted: muted,
    hasMedia: readyState >= HTMLMediaElement.HAVE_CURRENT_DATA,
    signal: engine.signal(),
  };
}

/** Closer to the live edge than one segment of the preview counts as live. */
const LIVE_SLACK_SECS = 8;
/** The oldest seconds may be gone before they are loaded. */
const OLDEST_MARGIN_SECS = 6;

function Controls({ video, now, onStop }: { video: HTMLVideoElement; now: Position; onStop: () => void }) {
  const texts = t().preview;
  const behind = Math.max(0, now.live - now.at);
  const isLive = behind < LIVE_SLACK_SECS;
  const seek = (to: number): void => {
    video.currentTime = Math.min(Math.max(to, Math.min(now.start + OLDEST_MARGIN_SECS, now.live)), now.live);
  };
  const goLive = (): void => {
    seek(now.live);
    void video.play().catch(() => undefined);
  };
  return (
    <div class="stack">
      {now.signal === 'away' && <Note kind="warning">{texts.away}</Note>}
      <Rewind
        span={Math.max(0, now.live - now.start)}
        behind={behind}
        latency={now.edge - now.live}
        isLive={isLive}
        onSeek={(back) => seek(now.live - back)}
      />
      <div class="row">
        <Button onClick={() => (now.isPaused ? void video.play().catch(() => undefined) : video.pause())}>
          {now.isPaused ? texts.play : texts.pause}
        </Button>
        <Button icon="live" pressed={isLive} onClick={goLive}>
          {texts.live}
        </Button>
        <Button onClick={() => (video.muted = !video.muted)}>{now.isMuted ? texts.unmute : texts.mute}</Button>
        <Button kind="quiet" icon="stop" onClick={onStop}>
          {texts.stop}
        </Button>
      </div>
      <Figures
        items={[
          [texts.latency, clock((now.edge - now.at) * 1_000)],
          [texts.window, clock((now.edge - now.start) * 1_000)],
        ]}
      />
    </div>
  );
}

/** Step of the arrow keys. It is longer than the slack, so that one step leaves the live edge. */
const STEP_SECS = 10;
const STEPS: Readonly<Record<string, number>> = { ArrowLeft: STEP_SECS, ArrowDown: STEP_SECS, ArrowRight: -STEP_SECS, ArrowUp: -STEP_SECS };

interface RewindProps {
  /** Length of the window, and distance from its right end, in seconds. */
  span: number;
  behind: number;
  /** Seconds from the right end of the bar to the newest media. */
  latency: number;
  isLive: boolean;
  onSeek: (back: number) => void;
}

/** The bar of the window; its right end is the live edge. */
function Rewind({ span, behind, latency, isLive, onSeek }: RewindProps) {
  const texts = t().preview;
  const [dragged, drag] = useState<number | null>(null);
  const max = Math.round(span);
  const back = dragged !== null ? max - dragged : isLive ? 0 : Math.min(Math.round(behind), max);
  const text = back === 0 ? texts.live : texts.behind(clock((back + latency) * 1_000));
  return (
    <div class="rewind">
      <input
        type="range"
        min={0}
        max={max}
        value={max - back}
        disabled={max === 0}
        aria-label={texts.position}
        aria-valuetext={text}
        onKeyDown={(event) => {
          const step = STEPS[event.key];
          if (step !== undefined) {
            event.preventDefault();
            onSeek(behind + step);
          }
        }}
        onInput={(event) => drag(Number(event.currentTarget.value))}
        onChange={(event) => {
          onSeek(max - Number(event.currentTarget.value));
          drag(null);
        }}
      />
      <span class="figure small muted">{text}</span>
    </div>
  );
}
