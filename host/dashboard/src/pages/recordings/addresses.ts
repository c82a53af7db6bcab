// Addresses of a recording or clip for its viewers, made from the owner's address of its media.

/** The player page, with the token of the owner. */
export function playerOf(url: string): string {
  return url.replace('/vod/', '/watch/vod/').replace(/\/(index\.m3u8|clip\.mp4)/, '');
}

/** The same address for viewers with this public key. */
export function publicOf(url: string, key: string): string {
  return `${url.split('?')[0]}?apiKey=${key}`;
}

/** The player page in a frame of a website. */
export function embedOf(url: string, key: string, title: string): string {
  return `<iframe src="${publicOf(playerOf(url), key)}" width="960" height="540" allow="autoplay; fullscreen" title="${title}" style="border: 0"></iframe>`;
}
