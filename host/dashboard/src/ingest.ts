// Addresses and commands for encoders, and their refusals.

/** How long a refusal is news, in milliseconds. */
const REFUSAL_MS = 10 * 60_000;

/** The address for an encoder by SRT, with a key. OBS and ffmpeg count the latency in microseconds. */
export function srtAddress(server: string, key: string): string {
  return `${server}?streamid=${key}&latency=500000`;
}

/** A command that sends a file to `server` with a stream key. */
export function ffmpegLine(server: string, streamKey: string): string {
  return `ffmpeg -re -i video.mp4 -c copy -f flv ${server}/${streamKey}`;
}

/** The command without the key, to be shown. */
export function ffmpegShown(server: string): string {
  return ffmpegLine(server, 'STREAM_KEY');
}

/** The newest of the refusals, which are newest first; `undefined` when it is old. */
export function recentRefusal<Refusal extends { at: number }>([newest]: readonly Refusal[], now: number): Refusal | undefined {
  return newest && now - newest.at < REFUSAL_MS ? newest : undefined;
}
