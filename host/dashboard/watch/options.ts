// Options from the URL, and settings stored in this browser.

/** What the page shows. A clip is one file, without a playlist. */
export type Kind = 'stream' | 'recording' | 'clip';

export interface Media {
  kind: Kind;
  /** The index playlist or the file of a clip, key included. */
  index: string;
}

export interface Options extends Media {
  /** Public key, or token of a recording's owner; empty if the URL has none. */
  key: string;
  /** Where playback begins, in seconds (`#t=`); 0 is the start of a recording and the live edge of a stream. */
  from: number;
  /** Starts without a click (`autoplay=0` turns this off). */
  autoplay: boolean;
  /** Starts muted (`muted=1`). */
  muted: boolean;
  /** URL of the viewer count, including the key (`viewers=1`); empty if the count is not shown. */
  viewers: string;
}

const FROM = '#t=';

/** Reads `/watch/<path>?apiKey=...&autoplay=0&muted=1&viewers=1`, or `/watch/vod/<id>?token=...#t=30` of a recording or clip. */
export function options(address: Pick<Location, 'pathname' | 'search' | 'hash'>, kind: Kind): Options {
  const query = new URLSearchParams(address.search);
  const publicKey = query.get('apiKey') || query.get('key') || '';
  const [path = ''] = address.pathname.split('/').filter(Boolean).reverse();
  const stored = kind !== 'stream';
  const token = stored && publicKey === '' ? (query.get('token') ?? '') : '';
  const key = publicKey || token;
  const credential = `${token === '' ? 'apiKey' : 'token'}=${encodeURIComponent(key)}`;
  return {
    key,
    kind,
    index: `/${stored ? 'vod' : 'hls'}/${path}/${kind === 'clip' ? 'clip.mp4' : 'index.m3u8'}?${credential}`,
    from: stored && address.hash.startsWith(FROM) ? Math.max(0, Number(address.hash.slice(FROM.length)) || 0) : 0,
    autoplay: query.get('autoplay') !== '0',
    muted: query.get('muted') === '1',
    viewers: query.get('viewers') === '1' && !stored ? `/watch/${path}/viewers?apiKey=${encodeURIComponent(key)}` : '',
  };
}

/** Loads the page again at `position`. Returns `false` for a page that this has already loaded. */
export function reloadAt(position: number): boolean {
  if (location.hash.startsWith(FROM)) {
    return false;
  }
  location.replace(`${FROM}${position.toFixed(1)}`);
  location.reload();
  return true;
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
