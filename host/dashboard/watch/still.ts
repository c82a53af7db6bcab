// Whether a media element still plays: after the end of a stream no event may come, most often with parts.

import type { End } from './engine';
import type { Signal } from './signal';

/** A media element that stands still so long at the end of a stream will not say that it has ended. */
const OVER_STILL_MS = 3_000;
/** The service keeps an ended stream for so long: nothing more of it plays after that, not even for a viewer who paused. */
const OVER_KEPT_MS = 60_000;
/** A player that stands still so long while new media comes is begun anew. */
const STUCK_MS = 20_000;

export class Still {
  private place = NaN;
  private since = 0;
  private signal: Signal = 'on';

  /** Why it will not go on, if it will not. `now` is in milliseconds. */
  look({ currentTime, paused }: Pick<HTMLVideoElement, 'currentTime' | 'paused'>, signal: Signal, now: number): End | null {
    if (currentTime !== this.place || signal !== this.signal) {
      [this.place, this.since, this.signal] = [currentTime, now, signal];
    }
    const still = now - this.since;
    switch (signal) {
      case 'over':
        return still >= (paused ? OVER_KEPT_MS : OVER_STILL_MS) ? 'over' : null;
      case 'on':
        return !paused && still >= STUCK_MS ? 'lost' : null;
      // The page says that it waits for the streamer.
      case 'away':
        return null;
    }
  }
}
