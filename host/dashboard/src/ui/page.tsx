import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { visits } from '../router';

interface PageProps {
  title: string;
  /** Link to the page above. */
  above?: { href: string; text: string };
  /** Beside the title: a state. */
  beside?: ComponentChildren;
  /** At the right of the title: buttons. */
  actions?: ComponentChildren;
  children: ComponentChildren;
}

/** A page with its title, which is the only `h1` and gets the focus when a person comes from another page. */
export function Page({ title, above, beside, actions, children }: PageProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Satcast`;
  }, [title]);
  useEffect(() => {
    // A page may have put the focus into its first field.
    const hasFocus = heading.current?.closest('.page')?.contains(document.activeElement);
    if (visits.peek() > 0 && !hasFocus) {
      heading.current?.focus({ preventScroll: true });
    }
  }, []);
  return (
    <div class="page">
      <header class="page-head">
        {above && (
          <p class="above">
            <a href={above.href}>{above.text}</a> /
          </p>
        )}
        <div class="page-title">
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
          {beside}
        </div>
        {actions && <div class="row">{actions}</div>}
      </header>
      {children}
    </div>
  );
}

interface CardProps {
  title: string;
  actions?: ComponentChildren;
  children: ComponentChildren;
}

/** A part of a page with a title. */
export function Card({ title, actions, children }: CardProps) {
  return (
    <section class="card" aria-label={title}>
      <div class="card-head">
        <h2>{title}</h2>
        {actions && <div class="row">{actions}</div>}
      </div>
      {children}
    </section>
  );
}

/** Figures with their names, side by side. */
export function Figures({ items }: { items: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="figures">
      {items.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd class="figure">{value}</dd>
        </div>
      ))}
    </dl>
  );
}
