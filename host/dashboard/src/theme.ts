// Light, dark, or as the system; stored per browser.

import { effect, signal } from '@preact/signals';

export type Theme = 'system' | 'light' | 'dark';
export const THEMES: readonly Theme[] = ['system', 'light', 'dark'];

const STORED = 'satcast.theme';

export const theme = signal<Theme>(THEMES.find((name) => name === localStorage.getItem(STORED)) ?? 'system');

/** Changes with the colours that are shown; charts draw again. */
export const dark = signal(false);

export function start(): void {
  const system = matchMedia('(prefers-color-scheme: dark)');
  const show = (): void => {
    dark.value = theme.value === 'system' ? system.matches : theme.value === 'dark';
    document.documentElement.style.colorScheme = theme.value === 'system' ? 'light dark' : theme.value;
  };
  system.addEventListener('change', show);
  effect(show);
}

export function choose(chosen: Theme): void {
  localStorage.setItem(STORED, chosen);
  theme.value = chosen;
}
