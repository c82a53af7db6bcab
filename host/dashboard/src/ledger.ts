// Entries of the ledger: their sums for a session.

import { api, listed, type Listed, type Schema } from './api';

export type LedgerEntry = Schema<'LedgerEntry'>;

/** Entries of one read; the most that the service gives. */
const PAGE = 1_000;
/** Most reads for one session: 5,000 entries are the minutes of two paid destinations for 41 hours. */
const PAGES_MAX = 5;

/** What one destination cost a session, by kind of charge. */
export interface Share {
  /** `null` if the charge belongs to no destination. */
  destinationId: number | null;
  kind: string;
  /** Thousandths of a sat; a charge is positive here, a refund negative. */
  msat: number;
}

export interface Shares {
  shares: Share[];
  /** Whether older charges of the session were not read. */
  isCut: boolean;
}

/** One page of the ledger, newest first. */
export function ledgerPage(limit: number, cursor?: string): Promise<Listed<LedgerEntry>> {
  const query = { limit, ...(cursor === undefined ? {} : { cursor }) };
  const pending = api.GET('/api/wallet/ledger', { params: { query } });
  // Without `format` it is JSON; the types have CSV too.
  return listed(pending as Promise<{ data?: LedgerEntry[]; response: Response }>);
}

/** The charges of a session that began at `startedAt`, by destination and kind. */
export async function sharesOf(sessionId: string, startedAt: number): Promise<Shares> {
  const found: LedgerEntry[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const { items, next } = await ledgerPage(PAGE, cursor);
    found.push(...items);
    if (next === null || items.some(({ createdAt }) => createdAt < startedAt)) {
      return { shares: addUp(found, sessionId), isCut: false };
    }
    cursor = next;
  }
  return { shares: addUp(found, sessionId), isCut: true };
}

/** The sums of a session's entries, largest first. */
export function addUp(entries: readonly LedgerEntry[], sessionId: string): Share[] {
  const sums = new Map<string, Share>();
  for (const { destinationId, kind, amountMsat } of entries.filter((entry) => entry.sessionId === sessionId)) {
    const key = `${destinationId} ${kind}`;
    const before = sums.get(key)?.msat ?? 0;
    sums.set(key, { destinationId, kind, msat: before - amountMsat });
  }
  return [...sums.values()].sort((left, right) => right.msat - left.msat);
}
