// Bit rates of the last minutes, as this tab has read them: the service keeps only the present figures.

import { signal } from '@preact/signals';
import type { Schema } from './api';

export interface Samples {
  /** Unix milliseconds, rising. */
  times: readonly number[];
  values: readonly (number | null)[];
}

/** How far back samples are kept. */
const KEPT_MS = 300_000;
/** A longer time without a sample is a gap in the line. */
const GAP_MS = 20_000;

const NONE: Samples = { times: [], values: [] };

const samples = signal<Readonly<Record<string, Samples>>>({});

/** Samples of the encoder of a stream. */
export const ofStream = (id: number): Samples => samples.value[`stream ${id}`] ?? NONE;
/** Samples of a destination. */
export const ofDestination = (id: number): Samples => samples.value[`destination ${id}`] ?? NONE;

/** Adds a sample; old ones go. */
export function add({ times, values }: Samples, at: number, value: number): Samples {
  const last = times.at(-1);
  const isGap = last !== undefined && at - last > GAP_MS;
  const from = times.findIndex((time) => at - time <= KEPT_MS);
  const keep = from < 0 ? times.length : from;
  return {
    times: [...times.slice(keep), ...(isGap ? [at - 1] : []), at],
    values: [...values.slice(keep), ...(isGap ? [null] : []), value],
  };
}

/** Bits per second that the encoder sends; 0 while it sends nothing. */
export function encoderBitrate({ health }: Pick<Schema<'StreamDetail'>, 'health'>): number {
  return (health?.video?.bitrate ?? 0) + (health?.audio?.bitrate ?? 0);
}

/** Keeps the figures of a stream that was read now. */
export function record(detail: Schema<'StreamDetail'>): void {
  if (detail.status !== 'active') {
    return;
  }
  const at = Date.now();
  const next: Record<string, Samples> = { ...samples.peek() };
  const put = (key: string, value: number): void => {
    next[key] = add(next[key] ?? NONE, at, value);
  };
  put(`stream ${detail.id}`, encoderBitrate(detail));
  for (const { id, bitrate } of detail.destinations) {
    put(`destination ${id}`, bitrate);
  }
  samples.value = next;
}
