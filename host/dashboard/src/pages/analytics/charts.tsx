import { bytes, GB, number, sats } from '../../format';
import { t } from '../../i18n';
import { barsOf, MONTHS_OF_ALL, unitOf, type Range, type Unit } from '../../ranges';
import { settled, useResource } from '../../resource';
import { Card, Loaded } from '../../ui';
import { Bars } from './bars';
import { readTotals, type Totals } from './totals';

/** Reads at a time: the browser has few connections to the service, and other reads must not wait for all bars. */
const PARALLEL = 3;
/** Time after the end of a bar from which its figures do not change any more. */
const SETTLED_MS = 7_200_000;
/** Interval of reads of the newest bar. */
const BARS_MS = 60_000;

/** A part of the range with its figures; `null` in the future. */
interface Bar extends Range {
  totals: Totals | null;
}

/** Minutes, sats and data over the range. The API has sums of ranges only, so each bar is read by itself, and kept once it is settled. */
export function Charts({ range, isCut }: { range: Range; isCut: boolean }) {
  const texts = t().analytics;
  const bars = useResource(`bars ${range.start} ${range.end}`, (signal) => readBars(range, signal), {
    on: ['stream.ended'],
    every: BARS_MS,
    fresh: BARS_MS / 2,
  });
  return (
    <Card title={texts.charts}>
      {isCut && <p class="help">{texts.newestMonths(MONTHS_OF_ALL)}</p>}
      <Loaded of={bars} rows={5}>
        {(read) => <Drawn bars={read} unit={unitOf(range)} />}
      </Loaded>
    </Card>
  );
}

async function readBars(range: Range, signal: AbortSignal): Promise<Bar[]> {
  const now = Date.now();
  const keyOf = ({ start, end }: Range): string => `bar ${start} ${end}`;
  const bars = barsOf(range).map((part): Bar => ({ ...part, totals: (settled.get(keyOf(part)) as Totals | undefined) ?? null }));
  const due = bars.filter(({ start, totals }) => start <= now && totals === null);
  const lane = async (): Promise<void> => {
    for (let bar = due.shift(); bar; bar = due.shift()) {
      const dates = { startDate: bar.start, endDate: bar.end };
      bar.totals = await readTotals(dates, dates, signal);
      if (bar.end + SETTLED_MS < now) {
        settled.set(keyOf(bar), bar.totals);
      }
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, lane));
  return bars;
}

function Drawn({ bars, unit }: { bars: readonly Bar[]; unit: Unit }) {
  const texts = t().analytics;
  const of = (label: string, read: (totals: Totals) => number) => ({ label, values: bars.map(({ totals }) => totals && read(totals)) });
  return (
    <div class="charts">
      <Bars
        title={texts.minutes}
        parts={bars}
        unit={unit}
        whole={of(texts.minutes, ({ stats }) => stats.totalMinutes)}
        format={(value) => number(value, 1)}
      />
      <Bars
        title={texts.spent}
        parts={bars}
        unit={unit}
        whole={of(texts.spent, ({ stats, usage }) => stats.totalSatsSpent + usage.overageSats)}
        part={of(texts.ofOverage, ({ usage }) => usage.overageSats)}
        format={sats}
      />
      <Bars
        title={texts.sent}
        parts={bars}
        unit={unit}
        whole={of(texts.sent, ({ usage }) => usage.totalGB * GB)}
        part={of(texts.ofAllowance, ({ usage }) => usage.overageGB * GB)}
        format={bytes}
      />
    </div>
  );
}
