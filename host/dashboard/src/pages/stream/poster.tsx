import { useEffect, useState } from 'preact/hooks';
import type { StreamDetail } from '../../store';

/** Interval of new posters. They count for the 60 requests a minute of the preview. */
const POSTER_MS = 60_000;

/** The newest keyframe of a live stream, as a video of one frame. Nothing where there is none. */
export function Poster({ stream }: { stream: StreamDetail }) {
  const preview = stream.playback.find(({ previewUrl }) => previewUrl !== null)?.previewUrl;
  const [turn, setTurn] = useState(0);
  const [isMissing, setMissing] = useState(false);
  useEffect(() => {
    const timer = setInterval(() => {
      setMissing(false);
      setTurn((before) => before + 1);
    }, POSTER_MS);
    return () => clearInterval(timer);
  }, []);
  if (!preview || isMissing) {
    return null;
  }
  return (
    <video
      class="poster"
      src={posterOf(preview, turn)}
      muted
      playsInline
      preload="auto"
      aria-hidden="true"
      onError={() => setMissing(true)}
    />
  );
}

/** Address of the poster beside the playlist, on the host of this page. */
function posterOf(preview: string, turn: number): string {
  const { pathname, searchParams } = new URL(preview, location.origin);
  searchParams.set('turn', String(turn));
  return `${pathname.replace(/index\.m3u8$/, 'poster.mp4')}?${searchParams}`;
}
