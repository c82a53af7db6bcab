// The light build of hls.js (no subtitles, no other renditions, no encryption) has no types of its own.
declare module 'hls.js/light' {
  export * from 'hls.js';
  export { default } from 'hls.js';
}
