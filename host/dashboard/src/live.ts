// Applies events of the feed to data that pages show, so that a change is seen before the data is read again.

import type { Schema } from './api';
import type { FeedEvent } from './feed';

type StreamState = Schema<'StreamState'>;

const STATES: Readonly<Record<string, StreamState>> = {
  'stream.started': 'live',
  'stream.reconnecting': 'reconnecting',
  'stream.reconnected': 'live',
  'stream.ended': 'idle',
};

interface Stateful {
  id: number;
  state: StreamState;
  status: Schema<'Status'>;
  lastEndReason: string | null;
  startedAt?: number;
}

function changed<Item extends Stateful>(item: Item, { name, data, at }: FeedEvent): Item {
  const state = STATES[name];
  if (state === undefined || data['streamId'] !== item.id) {
    return item;
  }
  const reason = data['reason'];
  const lastEndReason = name === 'stream.ended' && typeof reason === 'string' ? reason : item.lastEndReason;
  const next: Item = { ...item, state, status: state === 'idle' ? 'idle' : 'active', lastEndReason };
  if (state === 'idle') {
    delete next.startedAt;
  }
  return name === 'stream.started' ? { ...next, startedAt: at } : next;
}

/** The streams after an event. */
export function applyToStreams<Item extends Stateful>(streams: Item[], event: FeedEvent): Item[] {
  return streams.map((stream) => changed(stream, event));
}

/** Fields of a destination that `destination.state` has. */
const FIELDS = ['state', 'error', 'attempt', 'nextRetryAt', 'liveSince', 'stateSince'] as const;

/** A stream with its destinations after an event. */
export function applyToDetail<Detail extends Stateful & { destinations: { id: number }[] }>(
  detail: Detail,
  event: FeedEvent,
): Detail {
  const { name, data } = event;
  if (name === 'destination.state') {
    const fields = Object.fromEntries(FIELDS.filter((field) => field in data).map((field) => [field, data[field]]));
    const destinations = detail.destinations.map((each) => (each.id === data['destinationId'] ? { ...each, ...fields } : each));
    return { ...detail, destinations };
  }
  return changed(detail, event);
}
