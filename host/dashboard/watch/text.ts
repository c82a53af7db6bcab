// Texts and times that viewers read and hear.

import type { Kind } from './options';

/** `1:02:03`, `2:03` or `0:03`. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  const two = (value: number): string => String(value).padStart(2, '0');
  return hours > 0 ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

/** `1 hour 2 minutes`, `2 minutes 3 seconds`, `3 seconds`: for screen readers. */
export function spoken(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const parts: [number, string][] = [
    [Math.floor(whole / 3600), 'hour'],
    [Math.floor((whole % 3600) / 60), 'minute'],
    [whole >= 3600 ? 0 : whole % 60, 'second'],
  ];
  const said = parts.filter(([count]) => count > 0).map(([count, unit]) => `${count} ${unit}${count === 1 ? '' : 's'}`);
  return said.join(' ') || '0 seconds';
}

/** The stream is open, but the encoder sends nothing. */
export const AWAY = 'Waiting for the streamer…';

/** Text over the video, and advice for the viewer. */
export interface Notice {
  headline: string;
  advice: string;
}

/** Why nothing plays. */
export type Reason =
  | 'starting'
  | 'ready'
  | 'offline'
  | 'over'
  | 'lost'
  | 'busy'
  | 'refused'
  | 'forbidden'
  | 'no-key'
  | 'broken'
  | 'unsupported';

function textsOf(name: string, title: string): Partial<Record<Reason, Notice>> {
  return {
    ready: { headline: title, advice: '' },
    offline: { headline: `The ${name} is not here`, advice: 'It was deleted, or its owner made it private.' },
    over: { headline: `The end of the ${name}`, advice: '' },
    lost: {
      headline: 'The media cannot be reached now',
      advice: 'This page keeps trying, and goes on from the same position.',
    },
    refused: {
      headline: `This address does not open the ${name} now`,
      advice: 'The address of an owner works for a day, and a key can be revoked. Ask the person who gave you the address for a new one.',
    },
  };
}

/** Other texts for what is not live. */
export const OF_KIND: Record<Kind, Partial<Record<Reason, Notice>>> = {
  stream: {},
  recording: textsOf('recording', 'Recording'),
  clip: textsOf('clip', 'Clip'),
};

export const NOTICES: Record<Reason, Notice> = {
  starting: { headline: 'Loading…', advice: '' },
  ready: { headline: 'Live now', advice: '' },
  offline: { headline: 'The stream is offline', advice: 'This page shows the stream as soon as it is live.' },
  over: { headline: 'The stream has ended', advice: 'If the stream comes back, this page shows it.' },
  lost: { headline: 'The server cannot be reached', advice: 'Check your connection. This page keeps trying.' },
  busy: { headline: 'Too many requests', advice: 'This page tries again in a moment.' },
  refused: {
    headline: 'This key does not open the stream now',
    advice:
      'The key was revoked, or the stream was switched off. This page keeps trying; ask the person who gave you the address for a new one.',
  },
  forbidden: {
    headline: 'This page may not play the stream',
    advice: 'Only the sites on the list of the stream owner may play it. Ask the owner to add this site.',
  },
  'no-key': {
    headline: 'The address of this player is not complete',
    advice: 'The address must end in ?apiKey= and a key. Ask the person who gave it to you for the complete address.',
  },
  broken: {
    headline: 'Your browser cannot play this stream',
    advice: 'The browser may not support the format. Try a current version of another browser.',
  },
  unsupported: {
    headline: 'Your browser cannot play live video',
    advice: 'Try a current version of Chrome, Edge, Firefox or Safari.',
  },
};
