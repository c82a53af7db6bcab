import { useEffect, useRef } from 'preact/hooks';
import { bitrate, codec, number } from '../../format';
import { encoderBitrate, ofStream } from '../../history';
import { t } from '../../i18n';
import type { StreamDetail } from '../../store';
import { Card, Chart, Elapsed, Figures, Note, toast } from '../../ui';
import { titleOf, useTypes } from './names';

/** State and health of a running session, in words and figures. */
export function Health({ stream }: { stream: StreamDetail }) {
  const texts = t().stream;
  const { health, startedAt } = stream;
  const { times, values } = ofStream(stream.id);
  useAnnouncedState(texts.state[stream.state]);
  return (
    <Card title={texts.health}>
      <p>{stream.slateSince === null ? texts.state[stream.state] : t().slate.state}</p>
      <Figures
        items={[
          ...(stream.encoders.length === 0 ? [] : [[texts.encoders, encoders(stream)] as const]),
          ...(startedAt === undefined ? [] : [[texts.liveFor, <Elapsed since={startedAt} />] as const]),
          ...(health
            ? [[texts.bitrate, bitrate(encoderBitrate(stream))] as const, ...mediaFigures(health), ...linkFigures(health)]
            : []),
        ]}
      />
      {health && <Issues health={health} hasDestinations={stream.destinations.length > 0} />}
      <Chart title={texts.bitrateChart} times={times} series={[{ label: texts.bitrate, values }]} format={bitrate} />
    </Card>
  );
}

/** Tells screen readers when the state changes, and not at first. */
function useAnnouncedState(text: string): void {
  const before = useRef(text);
  useEffect(() => {
    if (before.current !== text) {
      before.current = text;
      toast(text);
    }
  }, [text]);
}

/** The connected encoders, and which of them is active. */
function encoders({ encoders: connected }: StreamDetail): string {
  const texts = t().stream;
  return connected.map(({ role, state }) => `${texts.encoderRoles[role]}: ${texts.encoderStates[state]}`).join(' · ');
}

type Known = NonNullable<StreamDetail['health']>;

/** Round trip and losses, which the service knows of SRT and WHIP. */
function linkFigures({ srt, whip }: Known): (readonly [string, string])[] {
  const link = srt ?? whip;
  if (link === null) {
    return [];
  }
  const texts = t().stream;
  const shown = [
    link.rttMs !== null && texts.roundTrip(number(link.rttMs)),
    texts.packetsLost(number(link.packetsLost)),
    srt !== null && texts.packetsLate(number(srt.packetsDropped)),
  ];
  return [[srt ? 'SRT' : 'WHIP', shown.filter(Boolean).join(' · ')]];
}

function mediaFigures({ video, audio }: Known): (readonly [string, string])[] {
  const texts = t().stream;
  const size = video?.width && video.height ? `${video.width}×${video.height}` : null;
  const rate = video?.frameRate ? `${number(video.frameRate, 2)} fps` : null;
  const shown = video ? [codec(video.codec), size, rate].filter(Boolean).join(' · ') : texts.noVideo;
  const samples = audio?.sampleRate ? `${number(audio.sampleRate / 1000, 1)} kHz` : null;
  const heard = audio ? [codec(audio.codec), samples].filter(Boolean).join(' · ') : texts.noVideo;
  const interval = video?.keyframeIntervalSeconds;
  return [
    [texts.video, shown],
    [texts.audio, heard],
    ...(interval ? [[texts.keyframes, texts.every(number(interval, 1))] as const] : []),
  ];
}

function Issues({ health, hasDestinations }: { health: Known; hasDestinations: boolean }) {
  const texts = t().stream;
  const remedies: Readonly<Record<string, string>> = texts.remedies;
  const types = useTypes();
  const affected = (platforms: readonly string[]): string =>
    platforms.length === 0 ? texts.affectsAll : texts.affects(platforms.map((type) => titleOf(type, types)).join(', '));
  return health.issues.length === 0 ? (
    <Note kind="good">{texts.healthy}</Note>
  ) : (
    <ul class="stack">
      {health.issues.map(({ code, text, platforms }) => (
        <li key={`${code} ${platforms.join()}`}>
          <Note kind="warning">
            <strong>{texts.issues[code]}</strong>
            <p>{text}</p>
            {remedies[code] && <p>{remedies[code]}</p>}
            {hasDestinations && <p class="small">{affected(platforms)}</p>}
          </Note>
        </li>
      ))}
    </ul>
  );
}
