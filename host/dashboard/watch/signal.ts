// Whether the streamer sends: decided from what the playlists say, without a browser.

/** `on`: media comes. `away`: the stream is open and nothing comes. `over`: nothing will come. */
export type Signal = 'on' | 'away' | 'over';

/** What a playlist that was just fetched says. */
export interface Listed {
  /** Differs from one version with new media to the next. */
  version: string;
  /** Whether more may come. */
  live: boolean;
  /** Longest segment, in seconds. */
  targetSecs: number;
  /** How old the end of it is by the server's clock, in seconds; `null` when it does not say. */
  ageSecs: number | null;
}

/** So many target durations without anything new: one may be missed by an encoder whose keyframes come as they like. */
const TARGETS_WITHOUT = 2;
/** At least this long, as short segments come unevenly. */
const WITHOUT_SECS_MIN = 4;
/** A first playlist that is older by so many target durations was left behind by a streamer who is away. */
const FIRST_TARGETS = 3;
const FIRST_SECS_MIN = 10;

export class Watchman {
  signal: Signal = 'on';
  private version: string | null = null;
  private newAt = 0;

  /** A playlist came at `now`, in seconds. Nothing is said of who does not answer: that is the network's fault, or ours. */
  came({ version, live, targetSecs, ageSecs }: Listed, now: number): void {
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

  /** The server waited for something new, in vain. */
  waitedInVain(): void {
    if (this.signal === 'on') {
      this.signal = 'away';
    }
  }
}
