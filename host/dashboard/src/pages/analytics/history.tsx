import { api, listed, type Schema } from '../../api';
import { csvOf, download } from '../../csv';
import { number, sats } from '../../format';
import { t } from '../../i18n';
import type { Range } from '../../ranges';
import { usePages } from '../../resource';
import { query, setQuery } from '../../router';
import { typesOf, useDrivers, useStreams } from '../../store';
import { Button, Card, Empty, Loaded, Pager, SelectField, Table, TextField, Time, type Column } from '../../ui';

type Entry = Schema<'StreamHistoryEntry'>;

/** Rows of one page. */
const PAGE = 100;

/** The filters of the API besides the dates. */
interface Filters {
  minCost?: number;
  maxCost?: number;
  platform?: string;
  streamKeyId?: number;
}

/** The number in a field of the address; a field without a whole number is no filter. */
function wholeIn(name: string): number | undefined {
  const text = query.value.get(name) ?? '';
  return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

function filters(): Filters {
  const [minCost, maxCost, streamKeyId] = [wholeIn('min'), wholeIn('max'), wholeIn('stream')];
  const platform = query.value.get('platform') ?? '';
  return {
    ...(minCost === undefined ? {} : { minCost }),
    ...(maxCost === undefined ? {} : { maxCost }),
    ...(streamKeyId === undefined ? {} : { streamKeyId }),
    ...(platform === '' ? {} : { platform }),
  };
}

/** Ended sessions that began in the range; `null` for all. */
export function History({ range }: { range: Range | null }) {
  const texts = t().analytics;
  const chosen = filters();
  const dates = range ? { startDate: range.start, endDate: range.end } : {};
  const pages = usePages(
    `history ${JSON.stringify({ ...dates, ...chosen })}`,
    (cursor) => {
      const wanted = { ...dates, ...chosen, limit: PAGE, ...(cursor === undefined ? {} : { cursor }) };
      return listed(api.GET('/api/stream-history', { params: { query: wanted } }));
    },
    { on: ['stream.ended'] },
  );
  const rows = pages.items ?? [];
  const isFiltered = Object.keys(chosen).length > 0;
  return (
    <Card
      title={texts.history}
      actions={
        <Button disabled={rows.length === 0} onClick={() => download('satcast-history.csv', csv(rows))}>
          {texts.csv}
        </Button>
      }
    >
      <FilterFields />
      <Loaded of={{ ...pages, data: pages.items }} rows={5}>
        {(items) => (items.length === 0 ? <Empty title={isFiltered ? texts.noneMatch : texts.none} /> : <Rows entries={items} />)}
      </Loaded>
      <Pager of={pages} />
      {pages.hasMore && <p class="help">{texts.csvHelp}</p>}
    </Card>
  );
}

function FilterFields() {
  const texts = t().analytics;
  const streams = useStreams();
  const drivers = useDrivers();
  const value = (name: string): string => query.value.get(name) ?? '';
  const streamOptions = (streams.data?.items ?? []).map(({ id, label }) => [String(id), label] as const);
  const types = typesOf(drivers.data ?? []).map(({ name, title }) => [name, title] as const);
  return (
    <div class="filters">
      <SelectField
        label={texts.stream}
        value={value('stream')}
        options={[['', texts.allStreams], ...streamOptions]}
        onChange={(id) => setQuery({ stream: id })}
      />
      <SelectField
        label={texts.platform}
        value={value('platform')}
        options={[['', texts.allPlatforms], ...types]}
        onChange={(name) => setQuery({ platform: name })}
      />
      <TextField label={texts.minCost} type="number" min={0} value={value('min')} onInput={(text) => setQuery({ min: text })} />
      <TextField label={texts.maxCost} type="number" min={0} value={value('max')} onInput={(text) => setQuery({ max: text })} />
    </div>
  );
}

function Rows({ entries }: { entries: readonly Entry[] }) {
  const texts = t().analytics;
  const columns: Column<Entry>[] = [
    { title: texts.started, cell: ({ startedAt }) => <Time at={startedAt} /> },
    { title: texts.stream, cell: ({ streamKeyId, streamKeyLabel }) => <a href={`/streams/${streamKeyId}`}>{streamKeyLabel}</a> },
    { title: texts.platform, cell: ({ platform }) => platform },
    { title: texts.duration, numeric: true, cell: ({ durationMinutes }) => number(durationMinutes, 1) },
    { title: texts.cost, numeric: true, cell: ({ totalCostSats }) => sats(totalCostSats) },
  ];
  return <Table caption={texts.history} columns={columns} rows={entries} rowKey={({ id }) => id} />;
}

/** The rows that are shown, with the names of the API's fields. */
function csv(entries: readonly Entry[]): string {
  const iso = (at: number): string => new Date(at).toISOString();
  const head = ['id', 'streamKeyId', 'streamKeyLabel', 'sessionId', 'platform', 'startedAt', 'endedAt', 'durationMinutes', 'totalCostSats'];
  const rows = entries.map((entry) => [
    entry.id,
    entry.streamKeyId,
    entry.streamKeyLabel,
    entry.sessionId,
    entry.platform,
    iso(entry.startedAt),
    iso(entry.endedAt),
    entry.durationMinutes,
    entry.totalCostSats,
  ]);
  return csvOf(head, rows);
}
