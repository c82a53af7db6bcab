import { useState } from 'preact/hooks';
import { language, t } from '../../i18n';
import type { Range, Unit } from '../../ranges';
import { Button, Table, type Column } from '../../ui';

export interface BarSeries {
  label: string;
  /** One value for each time; `null` in the future. */
  values: readonly (number | null)[];
}

interface BarsProps {
  title: string;
  /** The times of the bars. */
  parts: readonly Range[];
  unit: Unit;
  /** The values. */
  whole: BarSeries;
  /** A part of each value, drawn inside it. */
  part?: BarSeries;
  format: (value: number) => string;
}

/** Bars over times in UTC, or their values as a table. */
export function Bars(props: BarsProps) {
  const { title } = props;
  const [isTable, showTable] = useState(false);
  return (
    <figure class="chart">
      <figcaption>
        <span>{title}</span>
        <Button kind="quiet" pressed={isTable} label={`${t().ui.asTable}: ${title}`} onClick={() => showTable(!isTable)}>
          {t().ui.asTable}
        </Button>
      </figcaption>
      {isTable ? <BarTable {...props} /> : <BarImage {...props} />}
    </figure>
  );
}

const FORMS: Readonly<Record<Unit, Intl.DateTimeFormatOptions>> = {
  hour: { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' },
  day: { day: 'numeric', month: 'short' },
  month: { month: 'short', year: 'numeric' },
};

function inUtc(unit: Unit): Intl.DateTimeFormat {
  return new Intl.DateTimeFormat(language.value, { ...FORMS[unit], timeZone: 'UTC' });
}

/** Name of a bar, in UTC. */
function nameOf(bar: Range | undefined, unit: Unit): string {
  return bar ? inUtc(unit).formatRange(bar.start, bar.end - 1) : '';
}

function BarTable({ title, parts, unit, whole, part, format }: BarsProps) {
  const columns: Column<number>[] = [
    { title: `${t().ui.time} (UTC)`, cell: (index) => nameOf(parts[index], unit) },
    ...[whole, ...(part ? [part] : [])].map(({ label, values }) => ({
      title: label,
      numeric: true,
      cell: (index: number) => shown(values[index], format),
    })),
  ];
  // The future has no values.
  const rows = parts.map((_, index) => index).filter((index) => (whole.values[index] ?? null) !== null);
  return <Table caption={title} columns={columns} rows={rows.reverse()} rowKey={(index) => index} />;
}

function shown(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? '–' : format(value);
}

function BarImage({ title, parts, unit, whole, part, format }: BarsProps) {
  const top = niceTop(Math.max(0, ...whole.values.map((value) => value ?? 0)));
  const height = (value: number | null | undefined): string => `${((value ?? 0) / top) * 100}%`;
  const tip = (index: number): string => {
    const value = whole.values[index] ?? null;
    const lines = [whole, ...(part ? [part] : [])].map(({ label, values }) => `${label}: ${shown(values[index], format)}`);
    return value === null ? '' : [nameOf(parts[index], unit), ...lines].join('\n');
  };
  const marks = [0, Math.floor(parts.length / 2), parts.length - 1];
  return (
    <>
      <div class="bars" role="img" aria-label={t().ui.chart(title)}>
        <div class="bars-scale">
          <span>{format(top)}</span>
          <span>{format(0)}</span>
        </div>
        <div class="bars-field">
          {parts.map(({ start }, index) => (
            <div key={start} class="bar" title={tip(index)}>
              <div class="bar-whole" style={{ height: height(whole.values[index]) }} />
              {part && <div class="bar-part" style={{ height: height(part.values[index]) }} />}
            </div>
          ))}
        </div>
        <span class="bars-zone">UTC</span>
        <div class="bars-names">
          {marks.map((index) => (
            <span key={index}>{inUtc(unit).format(parts[index]?.start)}</span>
          ))}
        </div>
      </div>
      {part && (
        <ul class="legend small">
          <li>
            <span class="swatch bar-whole" /> {whole.label}
          </li>
          <li>
            <span class="swatch bar-part" /> {part.label}
          </li>
        </ul>
      )}
    </>
  );
}

const NICE = [1, 2, 5, 10];

/** The next of 1, 2 or 5 times a power of ten; 1 for no values. */
export function niceTop(value: number): number {
  if (value <= 0) {
    return 1;
  }
  const power = 10 ** Math.floor(Math.log10(value));
  const step = NICE.find((nice) => nice * power >= value) ?? 10;
  return step * power;
}
