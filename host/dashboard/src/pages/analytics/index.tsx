import { bytes, GB, number, sats } from '../../format';
import { t } from '../../i18n';
import { FILTERS, rangeBetween, rangeOf, type Filter, type Range } from '../../ranges';
import { useResource, type Resource } from '../../resource';
import { query, setQuery } from '../../router';
import { Card, Choice, Figures, Loaded, Page, TextField } from '../../ui';
import { Charts } from './charts';
import { History } from './history';
import { readTotals, type Totals } from './totals';

/** A range as it was chosen: one of the API's filters, or two dates. */
type Picked = Filter | 'dates';

const PICKED_FIRST: Picked = 'day';
/** Interval of reads: running sessions count up to now. Ranges that are chosen again within half of it are not read again. */
const TOTALS_MS = 60_000;

export default function View() {
  const texts = t().analytics;
  const picked = pickedIn(query.value.get('range'));
  const from = query.value.get('from') ?? '';
  const to = query.value.get('to') ?? '';
  const range = picked === 'dates' ? rangeBetween(from, to) : rangeOf(picked, Date.now());
  return (
    <Page title={t().nav.analytics}>
      <div class="stack">
        <div class="row">
          <Choice
            label={texts.range}
            value={picked}
            options={[...FILTERS, 'dates' as const].map((name) => [name, texts.ranges[name]] as const)}
            onChange={(name) => setQuery({ range: name })}
          />
        </div>
        {picked === 'dates' && (
          <div class="row dates">
            <TextField label={texts.from} type="date" value={from} onInput={(date) => setQuery({ from: date })} />
            <TextField
              label={texts.to}
              type="date"
              value={to}
              problem={from && to && !range ? texts.noRange : null}
              onInput={(date) => setQuery({ to: date })}
            />
          </div>
        )}
        <p class="help">{texts.utc}</p>
      </div>
      {range ? <Parts picked={picked} range={range} /> : <p class="muted">{texts.choose}</p>}
    </Page>
  );
}

function pickedIn(name: string | null): Picked {
  return [...FILTERS, 'dates' as const].find((known) => known === name) ?? PICKED_FIRST;
}

function Parts({ picked, range }: { picked: Picked; range: Range }) {
  const texts = t().analytics;
  const totals = useTotals(picked, range);
  const isAll = picked === 'all';
  return (
    <>
      <Card title={texts.totals}>
        <Loaded of={totals} rows={1}>
          {(read) => <TotalFigures totals={read} />}
        </Loaded>
      </Card>
      {picked !== 'hour' && <Charts range={range} isCut={isAll} />}
      <History range={isAll ? null : range} />
    </>
  );
}

function useTotals(picked: Picked, { start, end }: Range): Resource<Totals> {
  const dates = { startDate: start, endDate: end };
  return useResource(
    `totals ${picked} ${start} ${end}`,
    (signal) =>
      picked === 'dates'
        ? readTotals(dates, dates, signal)
        : // The statistics have no filter for an hour.
          readTotals(picked === 'hour' ? dates : { filter: picked }, { filter: picked }, signal),
    { on: ['stream.ended'], every: TOTALS_MS, fresh: TOTALS_MS / 2 },
  );
}

function TotalFigures({ totals: { stats, usage } }: { totals: Totals }) {
  const texts = t().analytics;
  return (
    <Figures
      items={[
        [texts.minutes, number(stats.totalMinutes, 1)],
        [texts.minuteSats, sats(stats.totalSatsSpent)],
        [texts.sent, bytes(usage.totalGB * GB)],
        [texts.overage, bytes(usage.overageGB * GB)],
        [texts.overageSats, sats(usage.overageSats)],
      ]}
    />
  );
}
