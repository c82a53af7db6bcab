// Errors that name a field of a form.

import type { Failure } from './api';

/** A field that the service refused: its name in the API, and the sentence after it. */
export interface Refusal {
  name: string;
  reason: string;
}

/** Errors of fields begin with the name: "Field `config.url`: must begin with rtmp://". */
const REFUSED = /^Field `([^`[]+)[^`]*`:? (.+)$/s;

export function refusalOf(failure: Pick<Failure, 'message'> | null): Refusal | null {
  const [, name, reason] = REFUSED.exec(failure?.message ?? '') ?? [];
  return name !== undefined && reason !== undefined ? { name, reason } : null;
}
