// What the address says, and what this browser remembers.

export interface Options {
  /** Public key; empty when the address has none. */
  key: string;
  /** The index playlist, key included. */
  index: string;
  /** Plays without being asked to (`autoplay=0` switches that off). */
  autoplay: boolean;
  /** Begins without sound (`muted=1`). */
  muted: boolean;
  /** Where to ask how many watch (`viewers=1`); empty when that is not to be shown. Carries the key, too. */
  viewers: string;
}

/** Reads `/watch/<path>?apiKey=...&autoplay=0&muted=1&viewers=1`. */
export function options(address: Location): Options {
  const query = new URLSearchParams(address.search);
  const key = query.get('apiKey') || query.get('key') || '';
  const path = address.pathname.split('/').filter(Boolean).at(-1) ?? '';
  return {
    key,
    index: `/hls/${path}/index.m3u8?apiKey=${encodeURIComponent(key)}`,
    autoplay: query.get('autoplay') !== '0',
    muted: query.get('muted') === '1',
    viewers: query.get('viewers') === '1' ? `/watch/${path}/viewers?apiKey=${encodeURIComponent(key)}` : '',
  };
}

const STORED = 'satcast.volume';

/** Loudness from 0 to 1, and whether the sound is off, as they were left the last time. */
export interface Sound {
  volume: number;
  muted: boolean;
}

/** What was stored; full loudness when nothing was, or when this browser stores nothing for this page. */
export function storedSound(): Sound {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(STORED) ?? '{}');
    const { volume, muted } = stored as Partial<Sound>;
    const known = typeof volume === 'number' && volume >= 0 && volume <= 1;
    return { volume: known ? volume : 1, muted: muted === true };
  } catch {
    return { volume: 1, muted: false };
  }
}

export function storeSound(sound: Sound): void {
  store(STORED, JSON.stringify(sound));
}

const STORED_NEAR = 'satcast.near';

/** Whether this browser stays as near to live as parts allow: the default. */
export function storedNear(): boolean {
  try {
    return localStorage.getItem(STORED_NEAR) !== 'no';
  } catch {
    return true;
  }
}

export function storeNear(near: boolean): void {
  store(STORED_NEAR, near ? 'yes' : 'no');
}

function store(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // A frame without storage: the next visit begins as the first did.
  }
}
