import { useEffect, useState } from 'preact/hooks';
import type { StreamDetail } from '../../store';
import { Frame } from '../../ui';

/** Interval of new posters. They count for the 60 requests a minute of the preview. */
const POSTER_MS = 60_000;

/** The newest keyframe of a live stream. Nothing where there is none. */
export function Poster({ stream }: { stream: StreamDetail }) {
  const preview = stream.playback.find(({ previewUrl }) => previewUrl !== null)?.previewUrl;
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setTurn((before) => before + 1), POSTER_MS);
    return () => clearInterval(timer);
  }, []);
  return preview ? <Frame url={posterOf(preview, turn)} /> : null;
}

/** Address of the poster beside the playlist. */
function posterOf(preview: string, turn: number): string {
  const url = new URL(preview, location.origin);
  url.pathname = url.pathname.replace(/index\.m3u8$/, 'poster.mp4');
  url.searchParams.set('turn', String(turn));
  return url.href;
}
