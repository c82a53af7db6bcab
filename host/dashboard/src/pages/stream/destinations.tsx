import { useState } from 'preact/hooks';
import { answer, api } from '../../api';
import { bitrate, bytes, number, sats } from '../../format';
import { ofDestination } from '../../history';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { useConfig, useDrivers, type Destination, type DestinationType, type StreamDetail } from '../../store';
import {
  Badge,
  Button,
  Card,
  Chart,
  Confirm,
  Countdown,
  Elapsed,
  Empty,
  ErrorNote,
  Figures,
  Note,
  ReadNote,
  StateBadge,
  Time,
} from '../../ui';
import { AddDestination, EditDestination } from './destination_form';
import { useNames, useTypes } from './names';
import { Playback } from './playback';

interface Props {
  stream: StreamDetail;
  reload: () => Promise<void>;
}

export function Destinations({ stream, reload }: Props) {
  const texts = t().destination;
  const drivers = useDrivers();
  const { data: config } = useConfig();
  const [isAdding, add] = useState(false);
  /** The destination that was added last: its playback is open. */
  const [newest, setNewest] = useState<number | null>(null);
  const types = useTypes();
  const { destinations } = stream;
  const names = useNames(destinations);
  const button = (
    <Button kind={destinations.length === 0 ? 'main' : 'plain'} icon="add" disabled={!drivers.data} onClick={() => add(true)}>
      {texts.add}
    </Button>
  );
  return (
    <Card title={t().stream.destinations} actions={destinations.length > 0 && button}>
      <ReadNote of={drivers} />
      {destinations.length === 0 ? (
        <Empty title={texts.none}>
          {config && <p class="muted">{texts.free(config.pricing.FREE_PLATFORMS, sats(config.pricing.COST_PER_PLATFORM))}</p>}
          {button}
        </Empty>
      ) : (
        <ul>
          {destinations.map((destination) => {
            const type = types.find(({ name }) => name === destination.type);
            const isOpen = newest === destination.id;
            const name = names.get(destination.id) ?? '';
            return <Entry key={destination.id} {...{ stream, destination, type, name, isOpen, reload }} />;
          })}
        </ul>
      )}
      {isAdding && (
        <AddDestination
          stream={stream}
          onClose={() => add(false)}
          onAdded={async (id) => {
            setNewest(id);
            await reload();
          }}
        />
      )}
    </Card>
  );
}

interface EntryProps extends Props {
  destination: Destination;
  /** Its type; absent when its driver is not loaded. */
  type: DestinationType | undefined;
  name: string;
  isOpen: boolean;
}

type Shown = 'chart' | 'playback';

function Entry({ stream, destination, type, name, isOpen, reload }: EntryProps) {
  const [shown, show] = useState<Shown | null>(isOpen ? 'playback' : null);
  const { id, enabled, url } = destination;
  const playback = stream.playback.find(({ destinationId }) => destinationId === id);
  const toggle = (target: Shown) => () => show(shown === target ? null : target);
  return (
    <li class="destination">
      <div class="row">
        <h3>{name}</h3>
        <State destination={destination} stream={stream} />
      </div>
      {url && <p class="target small muted">{url}</p>}
      <Condition destination={destination} />
      <div class="row changes">
        {stream.status === 'active' && enabled && (
          <Button
            kind="quiet"
            label={t().destination.showChartNamed(name)}
            pressed={shown === 'chart'}
            onClick={toggle('chart')}
          >
            {t().destination.showChart}
          </Button>
        )}
        {playback && (
          <Button kind="quiet" label={t().playback.showNamed(name)} pressed={shown === 'playback'} onClick={toggle('playback')}>
            {t().playback.show}
          </Button>
        )}
        <Changes {...{ stream, destination, type, name, reload }} />
      </div>
      {shown === 'chart' && <RateChart id={id} name={name} />}
      {playback && shown === 'playback' && <Playback playback={playback} />}
    </li>
  );
}

type Question = 'edit' | 'delete';

/** The buttons that change a destination. */
function Changes({ stream, destination, type, name, reload }: Omit<EntryProps, 'isOpen'>) {
  const texts = t().destination;
  const [question, ask] = useState<Question | null>(null);
  const { id, enabled, url } = destination;
  const path = { id: stream.id, destId: id };
  const switching = useAction(async () => {
    await answer(api.PATCH('/api/streams/{id}/destinations/{destId}', { params: { path }, body: { enabled: !enabled } }));
    await reload();
  });
  const remove = async (): Promise<void> => {
    await answer(api.DELETE('/api/streams/{id}/destinations/{destId}', { params: { path } }));
    await reload();
  };
  const switchName = (enabled ? texts.disableNamed : texts.enableNamed)(name);
  return (
    <>
      <Button kind="quiet" label={switchName} busy={switching.busy} onClick={() => void switching.run()}>
        {enabled ? texts.disable : texts.enable}
      </Button>
      <Button kind="quiet" label={texts.editNamed(name)} onClick={() => ask('edit')}>
        {texts.edit}
      </Button>
      <Button kind="quiet" label={texts.deleteNamed(name)} onClick={() => ask('delete')}>
        {texts.delete}
      </Button>
      <ErrorNote failure={switching.failure} />
      {question === 'edit' && (
        <EditDestination {...{ stream, destination, type, name }} onClose={() => ask(null)} onSaved={reload} />
      )}
      {question === 'delete' && (
        <Confirm title={texts.deleteTitle(name)} action={texts.delete} work={remove} onClose={() => ask(null)}>
          {url && <p class="target">{url}</p>}
          <p>{texts.deleteText}</p>
        </Confirm>
      )}
    </>
  );
}

/** The state in one word. Between sessions an enabled destination waits for the stream. */
function State({ destination: { enabled, state }, stream }: { destination: Destination; stream: StreamDetail }) {
  if (!enabled && state === 'stopped') {
    return <StateBadge state="disabled" />;
  }
  return stream.status === 'idle' && state === 'stopped' ? (
    <Badge tone="off" icon="wait">
      {t().destination.idle}
    </Badge>
  ) : (
    <StateBadge state={state} />
  );
}

/** Figures, the reason of a failure with the next try, and the last error. */
function Condition({ destination }: { destination: Destination }) {
  const texts = t().destination;
  const { state, error, lastError, nextRetryAt, attempt, liveSince, startsAt, stopsAt, server } = destination;
  const figures = [
    ...(liveSince === null ? [] : [[texts.live, <Elapsed since={liveSince} />] as const]),
    ...(nextRetryAt === null ? [] : [[texts.next, <Countdown until={nextRetryAt} />] as const]),
    ...(startsAt === null ? [] : [[texts.startsIn, <Countdown until={startsAt} />] as const]),
    ...(stopsAt === null ? [] : [[texts.stopsIn, <Countdown until={stopsAt} />] as const]),
    ...(destination.bytesSent === 0 ? [] : mediaFigures(destination)),
    ...(server === null ? [] : [[texts.server, server] as const]),
  ];
  return (
    <>
      {figures.length > 0 && <Figures items={figures} />}
      {error !== null && (
        <Note kind={state === 'failed' ? 'bad' : 'warning'}>
          <p>{error}</p>
          {attempt > 1 && <p class="small">{texts.attempt(attempt)}</p>}
        </Note>
      )}
      {error === null && lastError !== null && (
        <p class="small muted">
          {texts.lastError}, <Time at={lastError.at} />: {lastError.message}
        </p>
      )}
    </>
  );
}

function mediaFigures({ bitrate: rate, bytesSent, droppedPackets }: Destination): (readonly [string, string])[] {
  const texts = t().destination;
  return [
    [texts.bitrate, bitrate(rate)],
    [texts.sent, bytes(bytesSent)],
    [texts.dropped, number(droppedPackets)],
  ];
}

function RateChart({ id, name }: { id: number; name: string }) {
  const { times, values } = ofDestination(id);
  return (
    <Chart
      title={t().destination.showChartNamed(name)}
      times={times}
      series={[{ label: t().destination.chart, values }]}
      format={bitrate}
    />
  );
}
