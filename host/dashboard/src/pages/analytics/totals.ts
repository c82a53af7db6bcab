import { answer, api, type Schema } from '../../api';

export interface Totals {
  stats: Schema<'DashboardStats'>;
  usage: Schema<'BandwidthUsage'>;
}

interface Dates {
  startDate: number;
  endDate: number;
}

/** Statistics and usage of a range. No operation of the API has both. */
export async function readTotals(
  ofStats: Dates | { filter: Schema<'DashboardFilter'> },
  ofUsage: Dates | { filter: Schema<'BandwidthFilter'> },
  signal: AbortSignal,
): Promise<Totals> {
  const [stats, usage] = await Promise.all([
    answer(api.GET('/api/dashboard/stats', { params: { query: ofStats }, signal })),
    answer(api.GET('/api/bandwidth/usage', { params: { query: ofUsage }, signal })),
  ]);
  return { stats, usage };
}
