// The data that several pages show. Each has one key, so pages that are open together read it once.

import { answer, api, listed, type Listed, type Schema } from './api';
import { record } from './history';
import { applyToDetail, applyToStreams } from './live';
import { useResource, type Resource } from './resource';

export type Stream = Schema<'Stream'>;
export type StreamDetail = Schema<'StreamDetail'>;
export type Destination = Schema<'Destination'>;
export type DestinationType = Schema<'DestinationType'>;

/** How often figures are read, in milliseconds, as in `Options`. */
interface Figures {
  every?: number;
  /** As `every`, while the stream is idle; default: no reads. */
  idle?: number;
  fresh?: number;
}

/** Interval of reads of figures that have no events. */
export const FIGURES_MS = 5_000;
/** Interval of reads of costs and of the balance: charges have no events. */
const MONEY_MS = 15_000;

/** All streams of the account, newest first; it can have 1,000, which is one page. */
export function useStreams(): Resource<Listed<Stream>> {
  const load = () => listed(api.GET('/api/streams'));
  return useResource('streams', load, {
    on: ['stream.'],
    // It comes often and changes nothing in the list.
    about: ({ name }) => name !== 'stream.health',
    apply: (page, event) => ({ ...page, items: applyToStreams(page.items, event) }),
  });
}

/** A stream with its destinations, with new figures while it is live: every few seconds, or in a list less often. */
export function useStream(id: number, { every = FIGURES_MS, idle, ...rest }: Figures = {}): Resource<StreamDetail> {
  const load = async () => {
    const detail = await answer(api.GET('/api/streams/{id}', { params: { path: { id } } }));
    record(detail);
    return detail;
  };
  return useResource(`stream ${id}`, load, {
    on: ['stream.', 'destination.'],
    about: ({ data }) => (data['streamId'] ?? id) === id,
    apply: applyToDetail,
    every: ({ status }) => (status === 'active' ? every : idle),
    ...rest,
  });
}

/** Cost of the live streams, with new figures while there are any. */
export function useCost(): Resource<Schema<'ActiveCost'>> {
  return useResource('cost', () => answer(api.GET('/api/public/streams/active/cost')), {
    on: ['stream.started', 'stream.ended', 'destination.state'],
    every: ({ hasActiveStream }) => (hasActiveStream ? MONEY_MS : undefined),
    fresh: FIGURES_MS,
  });
}

/** The account's balance. */
export function useBalance(): Resource<Schema<'WalletBalance'>> {
  return useResource('balance', () => answer(api.GET('/api/wallet/balance')), {
    on: ['wallet.', 'account.credited', 'stream.ended'],
    every: MONEY_MS,
  });
}

/** Prices, limits, and servers for encoders. */
export function useConfig(): Resource<Schema<'PublicConfig'>> {
  return useResource('config', () => answer(api.GET('/api/public/config')));
}

/** The drivers with their destination types. */
export function useDrivers(): Resource<Schema<'Driver'>[]> {
  return useResource('drivers', () => answer(api.GET('/api/drivers')), { on: ['driver.'] });
}

/** The destination types of the loaded drivers, by title. */
export function typesOf(drivers: readonly Schema<'Driver'>[]): DestinationType[] {
  return drivers.flatMap(({ types }) => types).sort((left, right) => left.title.localeCompare(right.title));
}

export function useKeys(): Resource<Listed<Schema<'ApiKey'>>> {
  return useResource('keys', () => listed(api.GET('/api/keys')), { on: ['key.'] });
}
