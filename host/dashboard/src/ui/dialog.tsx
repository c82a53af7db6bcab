import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import type { Failure } from '../api';
import { t } from '../i18n';
import { refusalOf } from '../refusal';
import { useAction } from '../resource';
import { Button } from './button';
import { RefusalContext } from './field';
import { ErrorNote } from './note';
import { Toasts } from './toast';

interface DialogProps {
  title: string;
  /** Closes it on Escape; absent where only a button may, because its content is shown once. */
  onClose?: () => void;
  children: ComponentChildren;
}

/** A dialog over the page, which ends with the buttons that close it. Render it while it is open; it gives the focus back. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const focused = document.activeElement;
    ref.current?.showModal();
    ref.current?.querySelector<HTMLElement>('input, select, textarea')?.focus();
    return () => {
      const target = focused?.isConnected ? focused : document.getElementById('main');
      if (target instanceof HTMLElement) {
        target.focus();
      }
    };
  }, []);
  return (
    <dialog
      ref={ref}
      class="dialog"
      aria-labelledby={id}
      // A browser may close a dialog at the second Escape without asking.
      onKeyDown={(event) => !onClose && event.key === 'Escape' && event.preventDefault()}
      onCancel={(event) => {
        event.preventDefault();
        onClose?.();
      }}
    >
      <h2 id={id}>{title}</h2>
      {children}
      {/* Everything outside an open dialog is silent, also the messages of the page. */}
      <Toasts />
    </dialog>
  );
}

interface ConfirmProps {
  /** Names the object: `Delete the stream "Sunday"?` */
  title: string;
  /** What happens then. */
  children: ComponentChildren;
  /** Text of the button: the verb. */
  action: string;
  danger?: boolean;
  /** Does it; `key` is for `once`. */
  work: (key: string) => Promise<void>;
  onClose: () => void;
}

/** Asks before something that cannot be undone. */
export function Confirm({ title, children, action, danger = true, work, onClose }: ConfirmProps) {
  const doing = useAction(work);
  const act = async (): Promise<void> => {
    if (await doing.run()) {
      onClose();
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="stack">{children}</div>
      <ErrorNote failure={doing.failure} />
      <DialogActions>
        <Button onClick={onClose}>{t().ui.cancel}</Button>
        <Button kind={danger ? 'danger' : 'main'} busy={doing.busy} onClick={() => void act()}>
          {action}
        </Button>
      </DialogActions>
    </Dialog>
  );
}

export function DialogActions({ children }: { children: ComponentChildren }) {
  return <div class="dialog-actions">{children}</div>;
}

interface FormDialogProps {
  title: string;
  action: string;
  busy: boolean;
  failure: Failure | null;
  onSubmit: () => void;
  onClose: () => void;
  children: ComponentChildren;
}

/** A form in a dialog. A refusal that names one of its fields stands at that field. */
export function FormDialog({ title, action, busy, failure, onSubmit, onClose, children }: FormDialogProps) {
  const form = useRef<HTMLFormElement>(null);
  const refusal = refusalOf(failure);
  const named = refusal && form.current?.elements.namedItem(refusal.name);
  const control = named instanceof HTMLElement ? named : null;
  useEffect(() => {
    control?.closest('details')?.setAttribute('open', '');
    control?.focus();
  }, [failure]);
  const submit = (event: Event): void => {
    event.preventDefault();
    if (!busy) {
      onSubmit();
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form class="stack" ref={form} onSubmit={submit}>
        <RefusalContext.Provider value={control && refusal}>{children}</RefusalContext.Provider>
        <ErrorNote failure={control ? null : failure} />
        <DialogActions>
          <Button onClick={onClose}>{t().ui.cancel}</Button>
          <Button kind="main" type="submit" busy={busy}>
            {action}
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}
