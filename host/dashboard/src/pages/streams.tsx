import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { answer, api, once } from '../api';
import { bitrate, sats } from '../format';
import { encoderBitrate, ofStream } from '../history';
import { t } from '../i18n';
import { useAction } from '../resource';
import { navigate, query, setQuery } from '../router';
import { useCost, useStream, useStreams, type Stream, type StreamDetail } from '../store';
import {
  Button,
  Elapsed,
  Empty,
  ErrorNote,
  FormDialog,
  Loaded,
  NOTHING,
  Page,
  ReadNote,
  Sparkline,
  StateBadge,
  Table,
  TextField,
  type Column,
} from '../ui';
import { Poster } from './stream/poster';

/** Rows that are shown at first, and added by the button. */
const ROWS = 50;
/** Interval of reads of the details of as many live streams; of more streams each is read less often. */
const DETAILS_MS = 15_000;
const DETAILS = 4;
/** Most live streams on the screen whose details are read. */
const DETAILS_MAX = 16;
/** Streams from which on the list has a search field. */
const SEARCH_FROM = 8;

const LABEL_CHARS_MAX = 128;

export default function View() {
  const texts = t().streams;
  const streams = useStreams();
  const [isAdding, add] = useState(false);
  const isEmpty = streams.data?.items.length === 0;
  const actions = !isEmpty && (
    <Button kind="main" icon="add" onClick={() => add(true)}>
      {texts.add}
    </Button>
  );
  return (
    <Page title={t().nav.streams} actions={actions}>
      <Loaded of={streams} rows={6}>
        {({ items }) => (items.length === 0 ? <First /> : <List streams={items} />)}
      </Loaded>
      {isAdding && <AddDialog onClose={() => add(false)} />}
    </Page>
  );
}

/** Makes a stream and opens its page. */
function useNewStream() {
  return useAction(async (key, label: string) => {
    const { id } = await answer(api.POST('/api/streams', { body: { label }, params: once(key) }));
    navigate(`/streams/${id}`);
  });
}

/** Before the first stream: its name, and the way to "live". */
function First() {
  const texts = t().streams;
  const [label, setLabel] = useState('');
  const adding = useNewStream();
  const submit = (event: Event): void => {
    event.preventDefault();
    void adding.run(label);
  };
  return (
    <Empty title={texts.none}>
      <ol class="steps">
        {texts.steps.map((step) => (
          <li key={step}>{step}</li>
        ))}
      </ol>
      <form class="first" onSubmit={submit}>
        <TextField
          label={texts.label}
          required
          maxLength={LABEL_CHARS_MAX}
          value={label}
          onInput={setLabel}
          placeholder={texts.example}
        />
        <ErrorNote failure={adding.failure} />
        <Button kind="main" type="submit" busy={adding.busy}>
          {texts.add}
        </Button>
      </form>
    </Empty>
  );
}

function AddDialog({ onClose }: { onClose: () => void }) {
  const texts = t().streams;
  const [label, setLabel] = useState('');
  const adding = useNewStream();
  return (
    <FormDialog
      title={texts.add}
      action={texts.create}
      busy={adding.busy}
      failure={adding.failure}
      onSubmit={() => void adding.run(label)}
      onClose={onClose}
    >
      <TextField
        label={texts.label}
        name="label"
        help={texts.labelHelp}
        required
        maxLength={LABEL_CHARS_MAX}
        value={label}
        onInput={setLabel}
        placeholder={texts.example}
      />
    </FormDialog>
  );
}

/** Live streams first, otherwise newest first. */
function sorted(streams: readonly Stream[], search: string): Stream[] {
  const wanted = search.trim().toLocaleLowerCase();
  const found = streams.filter(({ label }) => label.toLocaleLowerCase().includes(wanted));
  const isActive = ({ status }: Stream): boolean => status === 'active';
  return [...found.filter(isActive), ...found.filter((stream) => !isActive(stream))];
}

function List({ streams }: { streams: readonly Stream[] }) {
  const texts = t().streams;
  const search = query.value.get('search') ?? '';
  // Another search begins with few rows again.
  const [grown, grow] = useState({ search, rows: ROWS });
  const limit = grown.search === search ? grown.rows : ROWS;
  const found = sorted(streams, search);
  const shown = found.slice(0, limit);
  return (
    <div class="stack">
      {streams.length >= SEARCH_FROM && (
        <div class="spread">
          <div class="narrow grow">
            <TextField label={texts.search} type="search" value={search} onInput={(text) => setQuery({ search: text })} />
          </div>
          <p class="muted small">{texts.found(found.length, streams.length)}</p>
        </div>
      )}
      {found.length === 0 ? <Empty title={texts.noneFound} /> : <Rows streams={shown} />}
      {found.length > limit && (
        <div class="pager">
          <Button onClick={() => grow({ search, rows: limit + ROWS })}>{t().ui.more}</Button>
        </div>
      )}
    </div>
  );
}

/** The streams whose rows are on the screen, and a function that watches the element of a row. */
function useOnScreen(): { onScreen: ReadonlySet<number>; watch: (row: Element | null) => void } {
  const [onScreen, show] = useState<ReadonlySet<number>>(new Set());
  const { observer, watch } = useMemo(() => {
    const observer = new IntersectionObserver((entries) =>
      show((before) => {
        const after = new Set(before);
        for (const { target, isIntersecting } of entries) {
          const id = Number(target.getAttribute('data-stream'));
          after[isIntersecting ? 'add' : 'delete'](id);
        }
        return after;
      }),
    );
    const watch = (row: Element | null): void => {
      if (row) {
        observer.observe(row);
      }
    };
    return { observer, watch };
  }, []);
  useEffect(() => () => observer.disconnect(), []);
  return { onScreen, watch };
}

function Rows({ streams }: { streams: readonly Stream[] }) {
  const texts = t().streams;
  const { onScreen, watch } = useOnScreen();
  const live = streams.filter(({ id, status }) => status === 'active' && onScreen.has(id)).slice(0, DETAILS_MAX);
  const detailed = new Set(live.map(({ id }) => id));
  const every = DETAILS_MS * Math.ceil(live.length / DETAILS);
  const cost = useCost();
  const costs = new Map(cost.data?.streams.map((entry) => [entry.streamKeyId, entry]));
  const ofDetail =
    (show: (detail: StreamDetail) => ComponentChildren, empty: string | null = NOTHING) =>
    ({ id }: Stream) =>
      detailed.has(id) ? (
        <Live id={id} every={every} empty={empty}>
          {show}
        </Live>
      ) : (
        empty
      );
  const poster = ofDetail((detail) => <Poster stream={detail} />, null);
  const columns: Column<Stream>[] = [
    {
      title: texts.stream,
      cell: (stream) => (
        <span class="stream-name" data-stream={stream.id} ref={watch}>
          {poster(stream)}
          <a href={`/streams/${stream.id}`}>{stream.label}</a>
        </span>
      ),
    },
    { title: texts.state, cell: ({ state }) => <StateBadge state={state} /> },
    {
      title: texts.uptime,
      numeric: true,
      cell: ({ startedAt }) => (startedAt === undefined ? NOTHING : <Elapsed since={startedAt} />),
    },
    { title: texts.bitrate, cell: ofDetail((detail) => <Rate stream={detail} />) },
    { title: t().stream.destinations, numeric: true, cell: ofDetail((detail) => <Healthy stream={detail} />) },
    {
      title: texts.cost,
      numeric: true,
      cell: ({ id }) => {
        const entry = costs.get(id);
        return entry ? sats(entry.totalCharged) : NOTHING;
      },
    },
  ];
  return (
    <>
      <ReadNote of={cost} />
      <Table caption={t().nav.streams} columns={columns} rows={streams} rowKey={({ id }) => id} />
    </>
  );
}

interface LiveProps {
  id: number;
  /** Interval of reads, milliseconds. */
  every: number;
  /** Shown before the details are there. */
  empty: string | null;
  children: (detail: StreamDetail) => ComponentChildren;
}

/** Shows details of a live stream once they are there. */
function Live({ id, every, empty, children }: LiveProps) {
  const { data } = useStream(id, { every, fresh: every });
  return <>{data ? children(data) : empty}</>;
}

function Rate({ stream }: { stream: StreamDetail }) {
  const values = ofStream(stream.id).values.filter((value) => value !== null);
  return (
    <span class="rate">
      <Sparkline values={values} />
      <span class="figure">{bitrate(encoderBitrate(stream))}</span>
    </span>
  );
}

/** `3/4`: destinations that are live, of those that are enabled. */
function Healthy({ stream }: { stream: StreamDetail }) {
  const enabled = stream.destinations.filter((destination) => destination.enabled);
  const live = enabled.filter(({ state }) => state === 'live');
  return <span title={t().streams.healthy(live.length, enabled.length)}>{`${live.length}/${enabled.length}`}</span>;
}
