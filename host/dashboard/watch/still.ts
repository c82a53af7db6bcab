// Detects stalled playback: after the end of a stream the media element may send no event, most often with parts.

import type { End } from './engine';
import type { Signal } from './signal';

/** After this stall at the end of a stream, playback counts as ended, even without an event. */
const OVER_STILL_MS = 3_000;
/** The service keeps an ended stream this long; after that, a paused viewer cannot resume either. */
const OVER_KEPT_MS = 60_000;
/** A player that stalls this long while new media arrives is restarted. */
const STUCK_MS = 20_000;
/** A recording whose last frame is this near to its end, in seconds, is over. */
const END_SECS = 0.5;

type Seen = Pick<HTMLVideoElement, 'currentTime' | 'paused' | 'duration'>;

export class Still {
  private place = NaN;
  private since = 0;
  private signal: Signal = 'on';

  /** A recording waits for a viewer who paused, and for media that comes late. */
  constructor(private readonly isRecording: boolean) {}

  /** Why playback has ended, or `null`. `now` is in milliseconds. */
  look({ currentTime, paused, duration }: Seen, signal: Signal, now: number): End | null {
    if (currentTime !== this.place || signal !== this.signal) {
      [this.place, this.since, this.signal] = [currentTime, now, signal];
    }
    const still = now - this.since;
    if (this.isRecording && signal === 'over') {
      const isAtEnd = currentTime >= duration - END_SECS;
      return paused || still < (isAtEnd ? OVER_STILL_MS : STUCK_MS) ? null : isAtEnd ? 'over' : 'lost';
    }
    switch (signal) {
      case 'over':
        return still >= (paused ? OVER_KEPT_MS : OVER_STILL_MS) ? 'over' : null;
      case 'on':
        return !paused && still >= STUCK_MS ? 'lost' : null;
      // The page shows that it waits for the streamer.
      case 'away':
        return null;
    }
  }
}
