// Notes in place of data, or beside it: empty, failed, loading, old.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Failure } from '../api';
import { time } from '../format';
import { t } from '../i18n';
import type { Resource } from '../resource';
import { Button } from './button';
import { Icon } from './icon';
import { Countdown } from './time';

/** In place of an empty list: the first step. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** Why a request failed, and when to try again. Its name helps the operator only if the service is at fault. */
export function ErrorNote({ failure, retry }: { failure: Failure | null; retry?: (() => void) | undefined }) {
  if (!failure) {
    return null;
  }
  const texts = t().errors;
  const { status, request, requestId, retryAt } = failure;
  const isRefusal = status >= 400 && status < 500;
  return (
    <div class="note bad">
      <Icon name="warning" />
      <div>
        <p role="alert">{explain(failure)}</p>
        {retryAt !== null && <NextTry at={retryAt} />}
        {!isRefusal && request && (
          <details class="small">
            <summary>{texts.details}</summary>
            <p>{[request, requestId && texts.request(requestId)].filter(Boolean).join(' · ')}</p>
          </details>
        )}
        {retry && <Button onClick={retry}>{texts.again}</Button>}
      </div>
    </div>
  );
}

function NextTry({ at }: { at: number }) {
  return (
    <p class="small">
      {t().errors.nextTry} <Countdown until={at} />
    </p>
  );
}

/** The text of the service, or ours where no answer came or the text is for programs. */
export function explain({ code, message }: Failure): string {
  const { local } = t().errors;
  return code in local ? local[code as keyof typeof local] : message;
}

type NoteKind = 'info' | 'warning' | 'good' | 'bad';

const NOTE_ICONS = { info: 'info', warning: 'warning', good: 'good', bad: 'bad' } as const;

export function Note({ kind = 'info', children }: { kind?: NoteKind; children: ComponentChildren }) {
  return (
    <div class={`note ${kind}`}>
      <Icon name={NOTE_ICONS[kind]} />
      <div>{children}</div>
    </div>
  );
}

/** Wait before a skeleton is shown: most answers come earlier. */
const SKELETON_MS = 200;

export function Skeleton({ rows = 3 }: { rows?: number }) {
  const [isShown, show] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => show(true), SKELETON_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class="skeleton" data-shown={isShown} aria-busy="true">
      <span class="hidden">{t().ui.loading}</span>
      {Array.from({ length: rows }, (_, index) => (
        <div key={index} />
      ))}
    </div>
  );
}

/** Says of what time old data is. */
export function AsOf({ of }: { of: Pick<Resource<unknown>, 'stale' | 'asOf'> }) {
  return of.stale && of.asOf !== null ? (
    <p class="as-of">
      <Icon name="wait" /> {t().ui.asOf(time(of.asOf))}
    </p>
  ) : null;
}

/** Why a read failed. A read that is tried again by itself gets no box, and nothing beside old data if the service does not answer. */
export function ReadNote({ of: { failure, asOf, reload } }: { of: Pick<Resource<unknown>, 'failure' | 'asOf' | 'reload'> }) {
  if (failure !== null && failure.retryAt !== null) {
    return (
      <div class="muted">
        <p>{explain(failure)}</p>
        <NextTry at={failure.retryAt} />
      </div>
    );
  }
  if (failure?.isUnanswered) {
    return asOf === null ? <p class="muted">{t().errors.noData}</p> : null;
  }
  return <ErrorNote failure={failure} retry={() => void reload()} />;
}

interface LoadedProps<Data> {
  of: Resource<Data>;
  rows?: number;
  children: (data: Data) => ComponentChildren;
}

/** Data with its states: a skeleton before it, the failure beside it, the mark of old data above it. */
export function Loaded<Data>({ of, rows = 3, children }: LoadedProps<Data>) {
  return (
    <>
      <ReadNote of={of} />
      <AsOf of={of} />
      {of.data !== null ? (
        <div class={of.stale ? 'stale' : undefined}>{children(of.data)}</div>
      ) : (
        !of.failure && <Skeleton rows={rows} />
      )}
    </>
  );
}
