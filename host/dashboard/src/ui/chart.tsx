import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type uPlot from 'uplot';
import { date, dateTime, time } from '../format';
import { t } from '../i18n';
import { dark } from '../theme';
import { Button } from './button';
import { Table } from './table';
import { Time } from './time';

export interface Series {
  label: string;
  /** Values at the times of the chart; `null` where there is none. */
  values: readonly (number | null)[];
}

interface ChartProps {
  /** Names the chart. */
  title: string;
  /** Unix milliseconds, rising. */
  times: readonly number[];
  series: readonly Series[];
  /** Writes a value with its unit. */
  format: (value: number) => string;
  actions?: ComponentChildren;
}

const DAY_SECS = 86_400;
const MINUTE_SECS = 60;
/** Shortest time that a chart shows, and lowest top of its axis in bits per second: the numbers of less would be the same. */
const SPAN_SECS_MIN = 60;
const TOP_MIN = 100_000;
const HEIGHT = 160;
/** Space for the numbers at the left. */
const AXIS_WIDTH = 88;

/** Values over time, as lines or as a table. */
export function Chart({ title, times, series, format, actions }: ChartProps) {
  const [isTable, showTable] = useState(false);
  return (
    <figure class="chart">
      <figcaption>
        <span>{title}</span>
        <span class="row">
          {actions}
          <Button kind="quiet" pressed={isTable} onClick={() => showTable(!isTable)}>
            {t().ui.asTable}
          </Button>
        </span>
      </figcaption>
      {isTable ? (
        <ChartTable title={title} times={times} series={series} format={format} />
      ) : (
        <Canvas title={title} times={times} series={series} format={format} />
      )}
    </figure>
  );
}

function ChartTable({ title, times, series, format }: ChartProps) {
  const isShort = (times.at(-1) ?? 0) - (times[0] ?? 0) < DAY_SECS * 1000;
  const columns = [
    { title: t().ui.time, cell: (index: number) => <Time at={times[index] ?? 0} show={isShort ? time : dateTime} /> },
    ...series.map(({ label, values }) => ({
      title: label,
      numeric: true,
      cell: (index: number) => {
        const value = values[index];
        return value === null || value === undefined ? '–' : format(value);
      },
    })),
  ];
  const newestFirst = times.map((_, index) => times.length - 1 - index);
  return <Table caption={title} columns={columns} rows={newestFirst} rowKey={(index) => index} />;
}

function Canvas({ title, times, series, format }: ChartProps) {
  const ref = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const latest = useRef(format);
  latest.current = format;
  const data = [times.map((at) => at / 1000), ...series.map(({ values }) => [...values])] as uPlot.AlignedData;
  const newest = useRef(data);
  newest.current = data;
  const shape = series.map(({ label }) => label).join('\n');
  const isDark = dark.value;
  useEffect(() => {
    const box = ref.current;
    let isGone = false;
    const watch = new ResizeObserver(() => box && chart.current?.setSize({ width: box.clientWidth, height: HEIGHT }));
    void import('uplot').then(({ default: Plot }) => {
      if (box && !isGone) {
        chart.current = new Plot(
          optionsOf(box, { labels: shape.split('\n'), format: (value) => latest.current(value) }),
          newest.current,
          box,
        );
        watch.observe(box);
      }
    });
    return () => {
      isGone = true;
      watch.disconnect();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [shape, isDark]);
  useEffect(() => chart.current?.setData(newest.current), [times, series]);
  return <div ref={ref} class="canvas" role="img" aria-label={t().ui.chart(title)} />;
}

/** A colour of the theme as the canvas understands it. */
function resolved(box: Element, name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  box.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Times on the axis: as exact as their distance asks for. */
function axisTime(seconds: number, distance: number): string {
  const at = seconds * 1000;
  return distance >= DAY_SECS ? date(at) : time(at).slice(0, distance >= MINUTE_SECS ? 5 : 8);
}

/** The ends of the time axis. The ends that uPlot proposes for a single value are years apart. */
function spread(times: ArrayLike<number>): [number, number] {
  const end = times[times.length - 1] ?? Date.now() / 1000;
  return [Math.min(times[0] ?? end, end - SPAN_SECS_MIN), end];
}

interface Drawn {
  labels: string[];
  format: (value: number) => string;
}

function optionsOf(box: Element, { labels, format }: Drawn): uPlot.Options {
  const colours = ['--accent', '--series-2', '--series-3', '--series-4'].map((name) => resolved(box, name));
  const axis = {
    stroke: resolved(box, '--muted'),
    grid: { stroke: resolved(box, '--line'), width: 1 },
    ticks: { show: false },
    font: '12px system-ui',
  };
  const lines = labels.map((label, index) => {
    const stroke = colours[index % colours.length] ?? '';
    return {
      label,
      stroke,
      width: 2,
      points: { show: false },
      value: (_: uPlot, value: number | null) => (value === null ? '–' : format(value)),
    };
  });
  return {
    width: box.clientWidth,
    height: HEIGHT,
    cursor: { y: false, points: { size: 6 }, drag: { x: false } },
    scales: {
      x: { range: ({ data }) => spread(data[0]) },
      y: { range: (_, __, max: number | null) => [0, Math.max((max ?? 0) * 1.1, TOP_MIN)] },
    },
    axes: [
      { ...axis, values: (_, splits, __, ___, distance) => splits.map((seconds) => axisTime(seconds, distance)) },
      { ...axis, size: AXIS_WIDTH, values: (_, splits) => splits.map(format) },
    ],
    series: [
      { label: t().ui.time, value: (_, value) => (value === null ? '–' : `${date(value * 1000)}, ${time(value * 1000)}`) },
      ...lines,
    ],
  };
}

const SPARK = { width: 96, height: 24 };

/** A small line for lists; the figure beside it has the value. */
export function Sparkline({ values }: { values: readonly number[] }) {
  const top = Math.max(1, ...values);
  const step = SPARK.width / Math.max(1, values.length - 1);
  const y = (value: number): number => SPARK.height - 1 - (value / top) * (SPARK.height - 2);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${y(value).toFixed(1)}`);
  return (
    <svg class="sparkline" viewBox={`0 0 ${SPARK.width} ${SPARK.height}`} aria-hidden="true">
      <polyline points={points.join(' ')} />
    </svg>
  );
}
