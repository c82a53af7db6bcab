// Icons, drawn for this project on a grid of 16.

const PATHS = {
  streams: 'M2 4.5h12v7H2z M6.5 6.5v3l3-1.5z',
  webhooks: 'M3 8h7 M7 4.5 10.5 8 7 11.5 M13 3v10',
  keys: 'M9.5 6.5a3 3 0 1 0-2.2 2.9L8.5 10.5H10V12h1.5v1.5H14V11L9.4 8 M5.5 5.5h.01',
  recordings: 'M8 2.5v7 M5 7l3 3 3-3 M3 13h10',
  clips: 'M4 4.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3z M4 8.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3z M5.5 6.5 13.5 11 M5.5 9.5 13.5 5',
  analytics: 'M3 13V8 M8 13V3 M13 13v-7',
  wallet: 'M2.5 4.5h10v9h-10z M2.5 4.5l8-2v2 M10 9h.01',
  drivers: 'M5 2.5v3 M11 2.5v3 M3.5 5.5h9v3a4.5 4.5 0 0 1-9 0z M8 13v1.5',
  accounts: 'M8 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z M3 13.5c.5-5 9.5-5 10 0',
  settings: 'M2.5 5h7 M12.5 5h1 M11 3.5v3 M2.5 11h1 M6.5 11h7 M5 9.5v3',
  live: 'M8 9.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3z M4.5 4.5a5 5 0 0 0 0 7 M11.5 4.5a5 5 0 0 1 0 7',
  idle: 'M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11z M5 8h6',
  wait: 'M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11z M8 5v3l2 1.5',
  retry: 'M13 8a5 5 0 1 1-1.5-3.5 M13 2.5v2.5h-2.5',
  good: 'M3 8.5 6.5 12 13 4.5',
  bad: 'M4 4l8 8 M12 4l-8 8',
  warning: 'M8 2.5 14 13.5H2z M8 6.5v3 M8 11.5h.01',
  info: 'M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11z M8 7.5v3 M8 5.5h.01',
  stop: 'M4 4h8v8H4z',
  copy: 'M6 6h7v7.5H6z M3 10V2.5h7',
  show: 'M1.5 8c3-5.5 10-5.5 13 0-3 5.5-10 5.5-13 0z M8 9.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3z',
  hide: 'M1.5 8c3-5.5 10-5.5 13 0-3 5.5-10 5.5-13 0z M3 13 13 3',
  add: 'M8 3v10 M3 8h10',
  menu: 'M2.5 4.5h11 M2.5 8h11 M2.5 11.5h11',
  back: 'M10 3.5 5.5 8l4.5 4.5',
  offline: 'M2.5 2.5l11 11 M5 8.5a5 5 0 0 1 2-1.5 M10.5 7.5l1 1 M2.5 6a9 9 0 0 1 2-1.5 M8 4c2 0 4 .7 5.5 2 M8 12h.01',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
