// Short messages at the edge of the page, which screen readers say when they are idle. Only for changes of state and for
// results: figures that change each second would never end.

import { signal } from '@preact/signals';

/** Time for which a message is shown. */
const SHOWN_MS = 6_000;

const messages = signal<readonly { id: number; text: string }[]>([]);
let last = 0;

export function toast(text: string): void {
  last += 1;
  const id = last;
  messages.value = [...messages.value, { id, text }];
  setTimeout(() => {
    messages.value = messages.value.filter((message) => message.id !== id);
  }, SHOWN_MS);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {messages.value.map(({ id, text }) => (
        <p key={id}>{text}</p>
      ))}
    </div>
  );
}
