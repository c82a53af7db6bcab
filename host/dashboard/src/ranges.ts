// Ranges of time for figures, in UTC, as the API counts them.

/** The ranges that the API names. */
export const FILTERS = ['hour', 'day', 'week', 'month', 'year', 'all'] as const;
export type Filter = (typeof FILTERS)[number];

export type Unit = 'hour' | 'day' | 'month';

/** A half-open range, Unix milliseconds. */
export interface Range {
  start: number;
  end: number;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Longest range that is shown by the hour, and by the day; longer ones are shown by the month. */
const BY_HOUR_MS_MAX = 2 * DAY_MS;
const BY_DAY_MS_MAX = 62 * DAY_MS;
/** Most bars: each needs requests. Of a longer range each bar has several hours, days or months. */
export const BARS_MAX = 12;
/** Months that are shown for all time. */
export const MONTHS_OF_ALL = 12;

/** The range of a filter that contains `now`; for `all` the newest months. */
export function rangeOf(filter: Filter, now: number): Range {
  const date = new Date(now);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
  const day = Math.floor(now / DAY_MS) * DAY_MS;
  const hour = Math.floor(now / HOUR_MS) * HOUR_MS;
  const monday = day - ((date.getUTCDay() + 6) % 7) * DAY_MS;
  switch (filter) {
    case 'hour':
      return { start: hour, end: hour + HOUR_MS };
    case 'day':
      return { start: day, end: day + DAY_MS };
    case 'week':
      return { start: monday, end: monday + 7 * DAY_MS };
    case 'month':
      return { start: Date.UTC(year, month), end: Date.UTC(year, month + 1) };
    case 'year':
      return { start: Date.UTC(year), end: Date.UTC(year + 1) };
    case 'all':
      return { start: Date.UTC(year, month + 1 - MONTHS_OF_ALL), end: Date.UTC(year, month + 1) };
  }
}

/** The range of two dates as `YYYY-MM-DD`, both included; `null` if they are no range. */
export function rangeBetween(from: string, to: string): Range | null {
  const [start, end] = [Date.parse(from), Date.parse(to) + DAY_MS];
  return start < end ? { start, end } : null;
}

/** The unit in which a range is shown. */
export function unitOf({ start, end }: Range): Unit {
  const length = end - start;
  return length <= BY_HOUR_MS_MAX ? 'hour' : length <= BY_DAY_MS_MAX ? 'day' : 'month';
}

/** The parts of a range, oldest first. The first and the last one may be shorter than the others. */
export function barsOf({ start, end }: Range): Range[] {
  const unit = unitOf({ start, end });
  const starts: number[] = [];
  for (let at = start; at < end; at = nextStart(at, unit)) {
    starts.push(at);
  }
  const step = Math.ceil(starts.length / BARS_MAX);
  return starts.flatMap((at, index) => (index % step === 0 ? [{ start: at, end: starts[index + step] ?? end }] : []));
}

function nextStart(at: number, unit: Unit): number {
  if (unit === 'month') {
    const date = new Date(at);
    return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1);
  }
  const length = unit === 'hour' ? HOUR_MS : DAY_MS;
  return (Math.floor(at / length) + 1) * length;
}
