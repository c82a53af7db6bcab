// Webhooks and their deliveries.

import { answer, api, listed, once, type Listed, type Schema } from '../../api';
import { number } from '../../format';
import { t } from '../../i18n';
import { usePages, useResource, type Pages, type Resource } from '../../resource';
import { withKey } from './key';

export type Webhook = Schema<'Webhook'>;
export type WebhookEvent = Schema<'WebhookEvent'>;
export type Delivery = Schema<'Delivery'>;
export type DeliveryState = Schema<'DeliveryState'>;

/** Results of deliveries have no events in the feed. */
const RESULTS_MS = 5_000;
/** Deliveries of one page, the most that the service gives. */
const DELIVERIES = 100;

/** The events by subject. `test.ping` is sent on demand, so nobody subscribes to it. */
export const EVENTS: readonly (readonly [keyof ReturnType<typeof t>['webhooks']['subjects'], readonly WebhookEvent[]])[] = [
  ['streams', ['stream.started', 'stream.ended', 'stream.health', 'stream.failover']],
  ['destinations', ['destination.connected', 'destination.failed', 'destination.recovered']],
  ['money', ['limit.warning', 'limit.reached', 'balance.low']],
  ['recordings', ['recording.ready', 'recording.failed', 'recording.expiring', 'clip.ready', 'clip.failed']],
];

export function useWebhooks(): Resource<Listed<Webhook>> {
  return useResource('webhooks', () => withKey((headers) => listed(api.GET('/api/webhooks', { headers }))), {
    on: ['webhook.'],
    every: RESULTS_MS,
  });
}

/** The delivery log, newest first. */
export function useDeliveries(id: number, state: DeliveryState | null): Pages<Delivery> {
  const load = (cursor: string | undefined): Promise<Listed<Delivery>> => {
    const query = { limit: DELIVERIES, ...(state ? { state } : {}), ...(cursor ? { cursor } : {}) };
    return withKey((headers) => listed(api.GET('/api/webhooks/{id}/deliveries', { headers, params: { path: { id }, query } })));
  };
  return usePages(`deliveries ${id} ${state ?? 'all'}`, load, { on: ['webhook.redelivered', 'webhook.enabled'], every: RESULTS_MS });
}

export function enable(id: number, key: string): Promise<Schema<'Done'>> {
  return withKey((headers) => answer(api.POST('/api/webhooks/{id}/enable', { headers, params: { path: { id }, ...once(key) } })));
}

/** `84 ms`. */
export function latency(ms: number): string {
  return `${number(ms)}\u00a0ms`;
}
