// Decides from playlists whether the encoder sends media. Independent of the browser.

/** `on`: media arrives. `away`: the stream is open, but no media arrives. `over`: the stream has ended. */
export type Signal = 'on' | 'away' | 'over';

/** Summary of a fetched playlist. */
export interface Listed {
  /** Changes with each version that has new media. */
  version: string;
  /** Whether more media may follow. */
  live: boolean;
  /** Longest segment, in seconds. */
  targetSecs: number;
  /** Age of the newest media by the server's clock, in seconds; `null` if unknown. */
  ageSecs: number | null;
}

/** Target durations without new media after which the encoder counts as away; one can pass with irregular keyframes. */
const TARGETS_WITHOUT = 2;
/** Shortest such time in seconds, because short segments arrive irregularly. */
const WITHOUT_SECS_MIN = 4;
/** A first playlist older than this many target durations means that the encoder is away. */
const FIRST_TARGETS = 3;
const FIRST_SECS_MIN = 10;

export class SignalMonitor {
  signal: Signal = 'on';
  private version: string | null = null;
  private newAt = 0;

  /** Handles a playlist fetched at `now`, in seconds. Failed requests do not count: they are problems of the network or server. */
  update({ version, live, targetSecs, ageSecs }: Listed, now: number): void {
    const isFirst = this.version === null;
    const isNew = version !== this.version;
    this.version = version;
    if (isNew) {
      this.newAt = now;
    }
    const isOld = isFirst
      ? ageSecs !== null && ageSecs > Math.max(FIRST_TARGETS * targetSecs, FIRST_SECS_MIN)
      : !isNew && (this.signal === 'away' || now - this.newAt >= Math.max(TARGETS_WITHOUT * targetSecs, WITHOUT_SECS_MIN));
    this.signal = !live ? 'over' : isOld ? 'away' : 'on';
  }

  /** Handles a blocking reload that timed out at the server. */
  waitTimedOut(): void {
    if (this.signal === 'on') {
      this.signal = 'away';
    }
  }
}
