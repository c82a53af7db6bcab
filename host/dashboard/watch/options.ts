// Options from the URL, and settings stored in this browser.

export interface Options {
  /** Public key, or token of a recording's owner; empty if the URL has none. */
  key: string;
  /** The page shows a recording. */
  recording: boolean;
  /** The index playlist, key included. */
  index: string;
  /** Starts without a click (`autoplay=0` turns this off). */
  autoplay: boolean;
  /** Starts muted (`muted=1`). */
  muted: boolean;
  /** URL of the viewer count, including the key (`viewers=1`); empty if the count is not shown. */
  viewers: string;
}

/** Reads `/watch/<path>?apiKey=...&autoplay=0&muted=1&viewers=1`, or `/watch/vod/<id>?token=...` of a recording. */
export function options(address: Location): Options {
  const query = new URLSearchParams(address.search);
  const publicKey = query.get('apiKey') || query.get('key') || '';
  const [path = '', folder] = address.pathname.split('/').filter(Boolean).reverse();
  const recording = folder === 'vod';
  const token = recording && publicKey === '' ? (query.get('token') ?? '') : '';
  const key = publicKey || token;
  const credential = `${token === '' ? 'apiKey' : 'token'}=${encodeURIComponent(key)}`;
  return {
    key,
    recording,
    index: `/${recording ? 'vod' : 'hls'}/${path}/index.m3u8?${credential}`,
    autoplay: query.get('autoplay') !== '0',
    muted: query.get('muted') === '1',
    viewers: query.get('viewers') === '1' && !recording ? `/watch/${path}/viewers?apiKey=${encodeURIComponent(key)}` : '',
  };
}

const STORED = 'satcast.volume';

/** Last volume, from 0 to 1, and whether the audio was muted. */
export interface AudioSettings {
  volume: number;
  muted: boolean;
}

/** The stored settings; full volume if none are stored or storage is not available. */
export function storedAudio(): AudioSettings {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(STORED) ?? '{}');
    const { volume, muted } = stored as Partial<AudioSettings>;
    const known = typeof volume === 'number' && volume >= 0 && volume <= 1;
    return { volume: known ? volume : 1, muted: muted === true };
  } catch {
    return { volume: 1, muted: false };
  }
}

export function storeAudio(settings: AudioSettings): void {
  store(STORED, JSON.stringify(settings));
}

const STORED_NEAR = 'satcast.near';

/** Whether to stay as close to the live edge as parts allow; default `true`. */
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
    // A frame without storage: settings are not kept.
  }
}
