// Commands for encoders.

/** A command that sends a file to `server` with a stream key. */
export function ffmpegLine(server: string, streamKey: string): string {
  return `ffmpeg -re -i video.mp4 -c copy -f flv ${server}/${streamKey}`;
}

/** The command without the key, to be shown. */
export function ffmpegShown(server: string): string {
  return ffmpegLine(server, 'STREAM_KEY');
}
