// What the address says, and what this browser remembers.

export interface Options {
  /** Public key; empty when the address has none. */
  key: string;
  /** The index playlist, key included: the only address that carries it. */
  index: string;
  /** Plays without being asked to (`autoplay=0` switches that off). */
  autoplay: boolean;
  /** Begins without sound (`muted=1`). */
  muted: boolean;
}

/** Reads `/watch/<path>?apiKey=...&autoplay=0&muted=1`. */
export function options(address: Location): Options {
  const query = new URLSearchParams(address.search);
  const key = query.get('apiKey') || query.get('key') || '';
  const path = address.pathname.split('/').filter(Boolean).at(-1) ?? '';
  return {
    key,
    index: `/hls/${path}/index.m3u8?apiKey=${encodeURIComponent(key)}`,
    autoplay: query.get('autoplay') !== '0',
    muted: query.get('muted') === '1',
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
  try {
    localStorage.setItem(STORED, JSON.stringify(sound));
  } catch {
    // A frame without storage: the next visit begins at full loudness.
  }
}
