// Data of the service that pages show: read once, kept, and read again when the feed tells of a change. Failed reads keep the
// last good data.

import { signal, type Signal } from '@preact/signals';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { asFailure, onceKey, type Failure, type Listed } from './api';
import { AGAIN, feedState, listen, type FeedEvent } from './feed';

export interface Resource<Data> {
  /** The newest data; `null` before the first answer. */
  data: Data | null;
  /** Why the newest read failed; `null` if it did not. */
  failure: Failure | null;
  /** Time of `data`, Unix milliseconds. */
  asOf: number | null;
  /** `data` may be old: the newest read failed, or no changes arrive. */
  stale: boolean;
  reload: () => Promise<void>;
}

export interface Options<Data> {
  /** Beginnings of the names of events after which the data is read again, such as `stream.`. */
  on?: readonly string[];
  /** Whether an event is about this data; default: all that `on` names. */
  about?: (event: FeedEvent) => boolean;
  /** Applies an event at once, before the data is read again. */
  apply?: (data: Data, event: FeedEvent) => Data;
  /** Interval of reads in milliseconds, for figures without events; may depend on the data. */
  every?: number | ((data: Data) => number | undefined);
  /** Data that is younger, in milliseconds, is not read again after an event or for one more component; default: a second. */
  fresh?: number;
}

/** Reads data. `signal` is aborted when no component needs the data any more. */
type Load<Data> = (signal: AbortSignal) => Promise<Data>;

const FRESH_MS = 1_000;

/** Without the feed, data of this age may be old: the tab was hidden, or the computer asleep. */
const OLD_MS = 30_000;

/** Events that come together cause one read. */
const TOGETHER_MS = 250;
/** Wait before the next try when no answer came. */
const RETRY_MS = 5_000;
/** Most kept resources; the oldest go first. */
const KEPT_MAX = 100;

interface Entry<Data> {
  state: Signal<{ data: Data | null; failure: Failure | null; asOf: number | null }>;
  isLoading: boolean;
  isDue: boolean;
  /** Timer of the planned read; 0 if none is planned. */
  timer: number;
  /** Components that need the data. */
  users: number;
  /** Ends the running read. */
  reading: AbortController;
}

const kept = new Map<string, Entry<unknown>>();

function entryOf<Data>(key: string): Entry<Data> {
  const entry = (kept.get(key) as Entry<Data> | undefined) ?? {
    state: signal({ data: null, failure: null, asOf: null }),
    isLoading: false,
    isDue: false,
    timer: 0,
    users: 0,
    reading: new AbortController(),
  };
  kept.delete(key);
  kept.set(key, entry as Entry<unknown>);
  const oldest = kept.keys().next().value;
  if (kept.size > KEPT_MAX && oldest !== undefined) {
    kept.delete(oldest);
  }
  return entry;
}

/** Data that does not change any more, by keys of its pages. */
export const settled = new Map<string, unknown>();

/** Forgets all data, after a logout. */
export function forget(): void {
  kept.clear();
  settled.clear();
}

/** Reads; a call during a read causes one more read after it. Nothing is asked before the time that the service named. */
async function read<Data>(entry: Entry<Data>, load: Load<Data>): Promise<void> {
  if (entry.isLoading) {
    entry.isDue = true;
    return;
  }
  if (waitOf(entry) > 0) {
    plan(entry, load, 0);
    return;
  }
  entry.isLoading = true;
  try {
    do {
      entry.isDue = false;
      await readOnce(entry, load);
    } while (entry.isDue && waitOf(entry) === 0);
  } finally {
    entry.isLoading = false;
  }
}

async function readOnce<Data>(entry: Entry<Data>, load: Load<Data>): Promise<void> {
  const asOf = Date.now();
  const { signal } = (entry.reading = new AbortController());
  try {
    const data = await load(signal);
    entry.state.value = { data, failure: null, asOf };
  } catch (error) {
    const failure = asFailure(error);
    if (!signal.aborted) {
      entry.state.value = { ...entry.state.peek(), failure };
      if (failure.retryAt !== null || failure.isUnanswered) {
        plan(entry, load, RETRY_MS);
      }
    }
  }
}

/** Milliseconds until the service takes the next request. */
function waitOf<Data>(entry: Entry<Data>): number {
  return Math.max(0, (entry.state.peek().failure?.retryAt ?? 0) - Date.now());
}

/** Reads after `ms` if a component then needs the data; an earlier plan stays. The feed asks for a read when a hidden tab is shown. */
function plan<Data>(entry: Entry<Data>, load: Load<Data>, ms: number): void {
  entry.timer ||= window.setTimeout(
    () => {
      entry.timer = 0;
      if (entry.users > 0 && !document.hidden) {
        void read(entry, load);
      }
    },
    waitOf(entry) || ms,
  );
}

/** The data under `key`. Components with the same key share it. */
export function useResource<Data>(key: string, load: Load<Data>, options: Options<Data> = {}): Resource<Data> {
  const entry = useMemo(() => entryOf<Data>(key), [key]);
  const latest = useRef({ load, options });
  latest.current = { load, options };
  const loadLatest = useMemo(() => (signal: AbortSignal) => latest.current.load(signal), [entry]);
  const reload = useMemo(() => () => read(entry, loadLatest), [entry]);
  const isOlder = (ms: number): boolean => Date.now() - (entry.state.peek().asOf ?? 0) > ms;
  useEffect(() => {
    entry.users += 1;
    if (isOlder(latest.current.options.fresh ?? FRESH_MS)) {
      void reload();
    }
    const unlisten = listen((event) => {
      const { on = [], about, apply, fresh = FRESH_MS } = latest.current.options;
      const isOurs = on.some((prefix) => event.name.startsWith(prefix)) && (about?.(event) ?? true);
      const state = entry.state.peek();
      if (isOurs && apply && state.data !== null) {
        entry.state.value = { ...state, data: apply(state.data, event), asOf: event.at };
      }
      if (isOurs || event.name === AGAIN) {
        plan(entry, loadLatest, Math.max(TOGETHER_MS, (state.asOf ?? 0) + fresh - Date.now()));
      }
    });
    return () => {
      unlisten();
      entry.users -= 1;
      if (entry.users === 0) {
        entry.reading.abort();
      }
    };
  }, [entry]);
  const { data, failure, asOf } = entry.state.value;
  const every = typeof options.every === 'function' ? data !== null && options.every(data) : options.every;
  useEffect(() => {
    if (!every) {
      return undefined;
    }
    const timer = setInterval(() => !document.hidden && isOlder(every / 2) && void reload(), every);
    return () => clearInterval(timer);
  }, [entry, every]);
  const isBehind = feedState.value === 'polling' || (feedState.value !== 'live' && isOlder(OLD_MS));
  const stale = data !== null && (failure !== null || isBehind);
  return { data, failure, asOf, stale, reload };
}

export interface Pages<Item> extends Omit<Resource<Item[]>, 'data'> {
  /** All items that were read so far; `null` before the first answer. */
  items: Item[] | null;
  /** Whether there are more. */
  hasMore: boolean;
  isLoadingMore: boolean;
  more: () => Promise<void>;
}

/** The pages after the first. */
interface Further<Item> {
  key: string;
  /** How many were read. */
  pages: number;
  /** The list as it was read, from its first item on. */
  read: Listed<Item> | null;
  busy: boolean;
  failure: Failure | null;
}

type LoadPage<Item> = (cursor: string | undefined) => Promise<Listed<Item>>;

/** A list that is read page by page. The first page is read again as other data is; `reload` reads all pages again. */
export function usePages<Item extends { id: number }>(
  key: string,
  load: LoadPage<Item>,
  options: Options<Listed<Item>> = {},
): Pages<Item> {
  const first = useResource(key, () => load(undefined), options);
  const none: Further<Item> = { key, pages: 0, read: null, busy: false, failure: null };
  const [state, setState] = useState(none);
  const further = state.key === key ? state : none;
  const list = first.data && joined(first.data, further.read);
  const read = async (from: Listed<Item> | null, count: number, pages: number): Promise<void> => {
    setState({ ...further, busy: true, failure: null });
    const end = (result: Partial<Further<Item>>): void =>
      setState((now) => (now.key === key ? { ...now, ...result, busy: false } : now));
    try {
      end({ read: await readPages(load, from, count), pages });
    } catch (error) {
      end({ failure: asFailure(error) });
    }
  };
  const more = async (): Promise<void> => {
    if (list && list.next !== null && !further.busy) {
      await read(list, 1, list === first.data ? 1 : further.pages + 1);
    }
  };
  const reload = async (): Promise<void> => {
    const { pages } = further;
    await Promise.all([first.reload(), pages > 0 && read(null, pages, pages)]);
  };
  const { asOf, stale } = first;
  const { busy, failure } = further;
  const hasMore = list !== null && list.next !== null;
  return { items: list && list.items, failure: failure ?? first.failure, asOf, stale, reload, hasMore, isLoadingMore: busy, more };
}

/** Reads `count` more pages after `from`; `null` = after the first page, which is read too. */
export async function readPages<Item>(load: LoadPage<Item>, from: Listed<Item> | null, count: number): Promise<Listed<Item>> {
  let list = from ?? (await load(undefined));
  for (let page = 0; page < count && list.next !== null; page += 1) {
    const { items, next } = await load(list.next);
    list = { items: [...list.items, ...items], next };
  }
  return list;
}

/** The first page, and the items of an earlier read that follow its last item. Without that item in the earlier read there is only
 * the first page: items between them may be missing. */
export function joined<Item extends { id: number }>(first: Listed<Item>, read: Listed<Item> | null): Listed<Item> {
  const last = first.items.at(-1)?.id;
  const at = read && first.next !== null ? read.items.findIndex(({ id }) => id === last) : -1;
  return read && at >= 0 ? { items: [...first.items, ...read.items.slice(at + 1)], next: read.next } : first;
}

/** The request with this key was done, and this one is another. */
const OTHER_REQUEST = 'idempotency_key_reused';

export interface Action<Arguments extends unknown[]> {
  busy: boolean;
  failure: Failure | null;
  /** Runs it; returns whether it succeeded. A call while it runs does nothing. */
  run: (...given: Arguments) => Promise<boolean>;
  clear: () => void;
}

/** Something that a person does, once at a time. `work` gets a key for `once`, which stays the same until it succeeds: after a lost
 * answer the next try is not done a second time. The service keeps no key of a refused request. */
export function useAction<Arguments extends unknown[]>(
  work: (key: string, ...given: Arguments) => Promise<void>,
): Action<Arguments> {
  const [state, setState] = useState<{ busy: boolean; failure: Failure | null }>({ busy: false, failure: null });
  const key = useRef<string | null>(null);
  const isBusy = useRef(false);
  const run = async (...given: Arguments): Promise<boolean> => {
    if (isBusy.current) {
      return false;
    }
    isBusy.current = true;
    setState({ busy: true, failure: null });
    key.current ??= onceKey();
    let failure: Failure | null = null;
    try {
      await work(key.current, ...given);
    } catch (error) {
      failure = asFailure(error);
    } finally {
      isBusy.current = false;
      setState({ busy: false, failure });
    }
    if (!failure || failure.code === OTHER_REQUEST) {
      key.current = null;
    }
    return failure === null;
  };
  return { ...state, run, clear: () => setState({ busy: false, failure: null }) };
}
