import type { ComponentChildren } from 'preact';
import { Icon, type IconName } from './icon';

interface Look {
  kind?: 'plain' | 'main' | 'danger' | 'quiet' | undefined;
  icon?: IconName;
  children: ComponentChildren;
}

interface ButtonProps extends Look {
  type?: 'button' | 'submit';
  busy?: boolean;
  disabled?: boolean;
  /** Name for screen readers, where the text alone does not name the object. */
  label?: string | undefined;
  /** Shows the icon alone; the text is the tip. */
  bare?: boolean;
  pressed?: boolean;
  expanded?: boolean;
  onClick?: () => void;
}

/** A button. A busy one keeps the focus and does nothing. */
export function Button({ kind = 'plain', icon, type = 'button', busy = false, disabled = false, ...rest }: ButtonProps) {
  const { label, bare = false, pressed, expanded, onClick, children } = rest;
  const press = (event: Event): void => {
    if (busy) {
      event.preventDefault();
    } else {
      onClick?.();
    }
  };
  return (
    <button
      type={type}
      class={`button ${kind} ${bare ? 'bare' : ''}`}
      title={bare ? label : undefined}
      disabled={disabled}
      aria-busy={busy}
      aria-disabled={busy}
      aria-label={label}
      aria-pressed={pressed}
      aria-expanded={expanded}
      onClick={press}
    >
      {icon && <Icon name={icon} />}
      <span class={bare ? 'hidden' : undefined}>{children}</span>
    </button>
  );
}

/** A link that looks like a button. */
export function LinkButton({ href, kind = 'plain', icon, children }: Look & { href: string }) {
  return (
    <a href={href} class={`button ${kind}`}>
      {icon && <Icon name={icon} />}
      <span>{children}</span>
    </a>
  );
}
