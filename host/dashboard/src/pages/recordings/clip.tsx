import type { RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Engine } from '../../../watch/engine';
import { clock, moment, momentOf } from '../../format';
import { t } from '../../i18n';
import { Button, Note, TextField } from '../../ui';
import { MakeDialog, SECONDS_MAX, type Range } from '../clips/make';
import { shortName, useRecording, type Recording } from './data';

/** Length of a clip when nothing is entered, in milliseconds. */
const LENGTH_MS = 30_000;
/** How far the clock of the player may be from that of the recording. */
const ROUNDING_MS = 500;

interface Props {
  recording: Recording;
  streamKeyId: number;
  onClose: () => void;
}

/** Makes a clip of a part of a recording, whose player marks the start and the end. */
export function ClipDialog({ recording, streamKeyId, onClose }: Props) {
  const texts = t().clips;
  const { fileName, state, startedAt, durationSeconds, playbackUrl } = useRecording(recording);
  const lastMs = durationSeconds * 1000;
  const [start, setStart] = useState(moment(0));
  const [end, setEnd] = useState(moment(Math.min(LENGTH_MS, lastMs)));
  const [isElsewhere, setElsewhere] = useState(false);
  const player = useRef<Engine | null>(null);
  const [from, to] = [momentOf(start), momentOf(end)];
  const length = from === null || to === null ? null : to - from;
  const isLength = length === null || (length > 0 && length <= SECONDS_MAX * 1000);
  const range = (): Range | null => (from === null || to === null || !isLength ? null : { from: startedAt + from, to: startedAt + to });
  const mark = (set: (text: string) => void): void => {
    const shown = player.current?.shownAt() ?? null;
    const at = shown === null ? null : shown - startedAt;
    // The player goes on into the other recordings of the session. The length of one that grows is that of its last report.
    const most = state === 'recording' ? Infinity : lastMs + ROUNDING_MS;
    const isOther = at !== null && (at < -ROUNDING_MS || at > most);
    setElsewhere(isOther);
    if (at !== null && !isOther) {
      set(moment(at));
    }
  };
  return (
    <MakeDialog name={shortName(fileName)} streamKeyId={streamKeyId} range={range} onClose={onClose}>
      {playbackUrl !== null && <Player url={playbackUrl} label={texts.video(shortName(fileName))} player={player} />}
      <Moment
        label={texts.from}
        name="from"
        problem={from === null ? texts.noMoment : null}
        value={start}
        onInput={setStart}
        here={texts.fromHere}
        onHere={() => mark(setStart)}
      />
      <Moment
        label={texts.to}
        name="to"
        problem={to === null ? texts.noMoment : isLength ? null : texts.noLength}
        value={end}
        onInput={setEnd}
        here={texts.toHere}
        onHere={() => mark(setEnd)}
      />
      <p class="help">{texts.rangeHelp(clock(lastMs))}</p>
      {isElsewhere && <Note kind="warning">{texts.elsewhere}</Note>}
    </MakeDialog>
  );
}

interface MomentProps {
  label: string;
  name: string;
  problem: string | null;
  value: string;
  onInput: (text: string) => void;
  here: string;
  onHere: () => void;
}

/** A moment of the recording, which can be taken from the player. */
function Moment({ label, name, problem, value, onInput, here, onHere }: MomentProps) {
  return (
    <div class="moment">
      <TextField label={label} name={name} required problem={problem} value={value} onInput={onInput} />
      <Button onClick={onHere}>{here}</Button>
    </div>
  );
}

interface PlayerProps {
  /** The owner's address of the playlist. */
  url: string;
  label: string;
  /** Set while it plays. */
  player: RefObject<Engine | null>;
}

/** The recording with the controls of the browser. */
function Player({ url, label, player }: PlayerProps) {
  const video = useRef<HTMLVideoElement>(null);
  const [isBroken, setBroken] = useState(false);
  useEffect(() => {
    const closing = new AbortController();
    const { pathname, search } = new URL(url, location.origin);
    const play = async (element: HTMLVideoElement): Promise<void> => {
      const { engine } = await import('../../../watch/engine');
      if (closing.signal.aborted) {
        return;
      }
      const running = await engine(element, { kind: 'recording', index: pathname + search }, 0);
      closing.signal.addEventListener('abort', () => running.stop());
      if (closing.signal.aborted) {
        running.stop();
        return;
      }
      player.current = running;
      setBroken((await running.ended) !== 'over');
    };
    if (video.current) {
      play(video.current).catch(() => setBroken(true));
    }
    return () => {
      closing.abort();
      player.current = null;
    };
  }, [url]);
  return (
    <>
      <div class="preview-screen">
        <video ref={video} controls muted playsInline aria-label={label} />
      </div>
      {isBroken && <Note kind="warning">{t().clips.noPlayer}</Note>}
    </>
  );
}
