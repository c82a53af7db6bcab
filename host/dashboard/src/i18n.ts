// The language of the pages. English comes with the first load, other languages when they are chosen.

import { signal } from '@preact/signals';
import { en } from './messages/en';

/** All texts; a language that lacks one does not compile. */
export type Messages = typeof en;

export const LANGUAGES = { en: 'English', de: 'Deutsch' } as const;
export type Language = keyof typeof LANGUAGES;

const STORED = 'satcast.language';

const messages = signal<Messages>(en);
export const language = signal<Language>('en');

/** The texts in the chosen language. */
export function t(): Messages {
  return messages.value;
}

const loaders: Record<Language, () => Promise<Messages>> = {
  en: async () => en,
  de: async () => (await import('./messages/de')).de,
};

/** Loads and shows a language; keeps the present one if it cannot be loaded. */
export async function speak(chosen: Language): Promise<void> {
  try {
    messages.value = await loaders[chosen]();
  } catch {
    return;
  }
  language.value = chosen;
  document.documentElement.lang = chosen;
}

/** Chooses a language for this browser. */
export async function choose(chosen: Language): Promise<void> {
  localStorage.setItem(STORED, chosen);
  await speak(chosen);
}

function isLanguage(name: string): name is Language {
  return name in LANGUAGES;
}

/** The chosen language, otherwise the first of the browser's that exists. */
export function preferred(): Language {
  const names = [localStorage.getItem(STORED) ?? '', ...navigator.languages.map((name) => name.slice(0, 2))];
  return names.find(isLanguage) ?? 'en';
}
