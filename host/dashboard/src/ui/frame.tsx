// Posters.

import { useEffect, useState } from 'preact/hooks';

/** A video of one frame, from the host of this page. Nothing where there is none. */
export function Frame({ url }: { url: string }) {
  const [isMissing, setMissing] = useState(false);
  useEffect(() => setMissing(false), [url]);
  if (isMissing) {
    return null;
  }
  const { pathname, search } = new URL(url, location.origin);
  return (
    <video
      class="poster"
      src={`${pathname}${search}`}
      muted
      playsInline
      preload="auto"
      aria-hidden="true"
      onError={() => setMissing(true)}
    />
  );
}
