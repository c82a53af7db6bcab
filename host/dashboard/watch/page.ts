// The page's elements and the display of its state.

import type { Kind } from './options';
import { NOTICES, OF_KIND, type Reason } from './text';

function element<T extends HTMLElement>(id: string, kind: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) {
    throw new Error(`the page has no ${kind.name} "${id}"`);
  }
  return found;
}

export const page = {
  player: element('player', HTMLElement),
  video: element('video', HTMLVideoElement),
  headline: element('headline', HTMLElement),
  advice: element('advice', HTMLElement),
  retry: element('retry', HTMLButtonElement),
  start: element('start', HTMLButtonElement),
  unmute: element('unmute', HTMLButtonElement),
  bar: element('bar', HTMLElement),
  seek: element('seek', HTMLInputElement),
  tip: element('tip', HTMLOutputElement),
  play: element('play', HTMLButtonElement),
  mute: element('mute', HTMLButtonElement),
  volume: element('volume', HTMLInputElement),
  live: element('live', HTMLButtonElement),
  liveWord: element('live-word', HTMLElement),
  behind: element('behind', HTMLElement),
  help: element('help', HTMLButtonElement),
  latency: element('latency', HTMLButtonElement),
  pip: element('pip', HTMLButtonElement),
  full: element('full', HTMLButtonElement),
  viewers: element('viewers', HTMLElement),
  keys: element('keys', HTMLDialogElement),
  announce: element('announce', HTMLElement),
};

/** What the page shows, as the service says. */
export function kind(): Kind {
  const said = page.player.dataset['kind'];
  return said === 'recording' || said === 'clip' ? said : 'stream';
}

/** Visual state of each reason. */
const LOOKS: Record<Reason, string> = {
  starting: 'starting',
  ready: 'ready',
  offline: 'offline',
  over: 'over',
  lost: 'lost',
  busy: 'lost',
  refused: 'refused',
  forbidden: 'refused',
  'no-key': 'refused',
  broken: 'refused',
  unsupported: 'refused',
};

/** Shows why nothing plays. */
export function notice(reason: Reason): void {
  const { headline, advice } = OF_KIND[kind()][reason] ?? NOTICES[reason];
  page.headline.textContent = headline;
  page.advice.textContent = advice;
  page.player.dataset['state'] = LOOKS[reason];
  if (reason !== 'starting') {
    say(`${headline}. ${advice}`);
  }
}

/** Removes the notice: video plays or is about to start. */
export function playing(): void {
  page.player.dataset['state'] = 'playing';
  page.headline.textContent = '';
  page.advice.textContent = '';
  say('Playing');
}

/** Announces a text to screen readers. */
export function say(text: string): void {
  page.announce.textContent = text;
}

/** Sets a `data-` flag of the player, by which the style sheet shows and hides. */
export function flag(name: string, on: boolean): void {
  page.player.dataset[name] = on ? 'yes' : 'no';
}
