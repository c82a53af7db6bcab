// Numbers and times as people read them. Money is in whole sats, data in powers of ten, times are local.

import { language } from './i18n';

/** Separates thousands: narrow, and no line breaks there. */
const THIN_SPACE = '\u202f';
/** Joins a number and its unit. */
const SPACE = '\u00a0';

/** `1 234 567`: whole sats without the unit. */
export function whole(value: number): string {
  const digits = grouped(String(Math.abs(Math.trunc(value))));
  return value <= -1 ? `−${digits}` : digits;
}

function grouped(digits: string): string {
  return digits.replace(/\B(?=(\d{3})+(?!\d))/g, THIN_SPACE);
}

/** A number in the language of the page, grouped as sats are. */
function written(value: number, options: Intl.NumberFormatOptions): string {
  const [digits = '', ...rest] = value.toLocaleString(language.value, { ...options, useGrouping: false }).split(point());
  return [grouped(digits), ...rest].join(point());
}

/** `1 234 sats`. */
export function sats(value: number): string {
  return `${whole(value)}${SPACE}${value === 1 ? 'sat' : 'sats'}`;
}

/** `12.345 sats`: the ledger holds thousandths. */
export function millisats(value: number): string {
  const rest = Math.abs(value % 1000);
  const sign = value < 0 && value > -1000 ? '−' : '';
  const decimals = rest === 0 ? '' : `${point()}${String(rest).padStart(3, '0').replace(/0+$/, '')}`;
  return `${sign}${whole(Math.trunc(value / 1000))}${decimals}${SPACE}sats`;
}

function point(): string {
  return language.value === 'de' ? ',' : '.';
}

function decimals(value: number, digits: number): string {
  return written(value, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** A number with at most `digits` decimals. */
export function number(value: number, digits = 0): string {
  return written(value, { maximumFractionDigits: digits });
}

/** Bytes of a GB. */
export const GB = 1e9;

const BYTES: readonly [number, string][] = [
  [GB, 'GB'],
  [1e6, 'MB'],
  [1e3, 'kB'],
];

/** `1.2 MB`, `0 B`. */
export function bytes(value: number): string {
  const [size, unit] = BYTES.find(([size]) => value >= size) ?? [1, 'B'];
  return `${decimals(value / size, size === 1 ? 0 : 1)}${SPACE}${unit}`;
}

/** `6.0 Mbit/s`, `128 kbit/s`. */
export function bitrate(bitsPerSecond: number): string {
  return bitsPerSecond >= 1e6
    ? `${decimals(bitsPerSecond / 1e6, 1)}${SPACE}Mbit/s`
    : `${decimals(bitsPerSecond / 1e3, 0)}${SPACE}kbit/s`;
}

const CODECS: Readonly<Record<string, string>> = { h264: 'H.264', hevc: 'HEVC', av1: 'AV1', aac: 'AAC', opus: 'Opus' };

/** `H.264`: the name of a codec of the API. */
export function codec(name: string): string {
  return CODECS[name] ?? name;
}

/** `1:02:03` or `2:03`. */
export function clock(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const two = (value: number): string => String(value).padStart(2, '0');
  const minutes = Math.floor(seconds / 60);
  return minutes >= 60
    ? `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)}`
    : `${minutes}:${two(seconds % 60)}`;
}

/** `1:02:05.3`: a moment of media, to the tenth of a second that has begun. */
export function moment(ms: number): string {
  return `${clock(ms)}.${Math.floor(Math.max(0, ms) / 100) % 10}`;
}

/** `1:02:05.3`, `2:05` or `5`, with a point or a comma. */
const MOMENT = /^(?:(?:(\d+):)?(\d+):)?(\d+(?:[.,]\d*)?)$/;

/** The milliseconds of a moment that was entered; `null` for another text. */
export function momentOf(text: string): number | null {
  const [, hours = '0', minutes = '0', seconds] = MOMENT.exec(text.trim()) ?? [];
  return seconds === undefined ? null : Math.round(((Number(hours) * 60 + Number(minutes)) * 60 + Number(seconds.replace(',', '.'))) * 1000);
}

/** `8 s`, `2 min`, `3 h`, `4 d`: a wait, rounded up. */
export function wait(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  if (seconds < 120) {
    return `${seconds}${SPACE}s`;
  }
  const minutes = Math.ceil(seconds / 60);
  if (minutes < 120) {
    return `${minutes}${SPACE}min`;
  }
  const hours = Math.ceil(minutes / 60);
  return hours < 48 ? `${hours}${SPACE}h` : `${Math.ceil(hours / 24)}${SPACE}d`;
}

/** Local time of day, `12:04:10`. */
export function time(at: number): string {
  return new Date(at).toLocaleTimeString(language.value, { hourCycle: 'h23' });
}

/** Local date. */
export function date(at: number): string {
  return new Date(at).toLocaleDateString(language.value, { dateStyle: 'medium' });
}

/** Local date and time to the minute. */
export function dateTime(at: number): string {
  return new Date(at).toLocaleString(language.value, { dateStyle: 'medium', timeStyle: 'short', hourCycle: 'h23' });
}

/** `2026-11-26 09:04:05 UTC`. */
export function utc(at: number): string {
  return `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}
