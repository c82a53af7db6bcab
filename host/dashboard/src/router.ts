// The address of the page, as a signal. Links are ordinary links: a click on one of ours changes the address without a load.

import { computed, signal } from '@preact/signals';

export type Params = Readonly<Record<string, string>>;

const current = signal(location.pathname + location.search + location.hash);

function parts(address: string): URL {
  return new URL(address, location.origin);
}

/** Path of the page, without query and fragment. */
export const path = computed(() => parts(current.value).pathname);
/** Query of the page. */
export const query = computed(() => parts(current.value).searchParams);

/** Changes since the page was loaded; 0 at first. */
export const visits = signal(0);

/** Goes to an address of the dashboard; `replace` leaves no entry in the history. */
export function navigate(address: string, { replace = false } = {}): void {
  if (replace) {
    history.replaceState(null, '', address);
  } else {
    history.pushState(null, '', address);
  }
  follow();
}

/** Sets or removes fields of the query, without an entry in the history. */
export function setQuery(changes: Readonly<Record<string, string | null>>): void {
  const target = parts(current.peek());
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === '') {
      target.searchParams.delete(name);
    } else {
      target.searchParams.set(name, value);
    }
  }
  history.replaceState(null, '', target.pathname + target.search);
  current.value = target.pathname + target.search;
}

function follow(): void {
  const before = path.peek();
  current.value = location.pathname + location.search + location.hash;
  if (path.peek() !== before) {
    visits.value += 1;
    window.scrollTo(0, 0);
  }
}

/** An identifier: a whole number that JavaScript can hold. */
const ID = /^\d{1,15}$/;

/** The fields of `path` by a pattern such as `/streams/:id`; `null` if it does not match. */
export function match(pattern: string, path: string): Params | null {
  const wanted = pattern.split('/').filter(Boolean);
  const found = path.split('/').filter(Boolean);
  if (wanted.length !== found.length) {
    return null;
  }
  const params: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const value = decode(found[index] ?? '');
    if (part === ':id' ? ID.test(value ?? '') : part.startsWith(':') && value !== null) {
      params[part.slice(1)] = value ?? '';
    } else if (part !== value) {
      return null;
    }
  }
  return params;
}

function decode(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/** Paths that the service answers itself. */
const SERVED = /^\/(api|hls|watch|docs|manual|assets|openapi\.json|licenses|metrics)(\/|$)/;

/** Whether a click follows a link of ours in this tab. */
function isOurs(event: MouseEvent, link: HTMLAnchorElement): boolean {
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  const sameTab = !link.target && !link.hasAttribute('download') && link.origin === location.origin;
  const sameDocument = link.pathname === location.pathname && link.hash !== '';
  return plain && sameTab && !sameDocument && !SERVED.test(link.pathname) && !event.defaultPrevented;
}

/** Starts to follow links and the buttons of the browser. */
export function start(): void {
  addEventListener('popstate', follow);
  document.addEventListener('click', (event) => {
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (link && isOurs(event, link)) {
      event.preventDefault();
      navigate(link.pathname + link.search + link.hash);
    }
  });
}
