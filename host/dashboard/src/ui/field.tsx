import { createContext, type ComponentChildren } from 'preact';
import { useContext, useEffect, useId, useRef } from 'preact/hooks';
import { t } from '../i18n';
import type { Refusal } from '../refusal';

/** The refusal that a form shows at its field. */
export const RefusalContext = createContext<Refusal | null>(null);

interface Common {
  label: string;
  /** Name of the value in the API, for errors that name it. */
  name?: string | undefined;
  help?: ComponentChildren;
  /** Why the value is refused. */
  problem?: string | null | undefined;
  optional?: boolean;
}

interface FieldProps extends Common {
  /** The control, with the attributes that bind it to label and help. */
  children: (bound: {
    id: string;
    name: string | undefined;
    'aria-describedby': string | undefined;
    'aria-invalid': boolean;
  }) => ComponentChildren;
}

/** A label, its control, help and the problem. */
export function Field({ label, name, help, problem: own, optional = false, children }: FieldProps) {
  const id = useId();
  const refusal = useContext(RefusalContext);
  const problem = own ?? (refusal && refusal.name === name ? `${label} ${refusal.reason}` : null);
  const ids = [help ? `${id}-help` : '', problem ? `${id}-problem` : ''].filter(Boolean).join(' ');
  return (
    <div class="field">
      <label for={id}>
        {label} {optional && <span class="muted">{t().ui.optional}</span>}
      </label>
      {children({ id, name, 'aria-describedby': ids || undefined, 'aria-invalid': Boolean(problem) })}
      {help && (
        <p id={`${id}-help`} class="help">
          {help}
        </p>
      )}
      {problem && (
        <p id={`${id}-problem`} class="problem">
          {problem}
        </p>
      )}
    </div>
  );
}

interface TextProps extends Common {
  value: string;
  onInput: (value: string) => void;
  type?: 'text' | 'password' | 'number' | 'url' | 'search' | 'date' | 'datetime-local';
  autocomplete?: string;
  required?: boolean;
  focus?: boolean;
  placeholder?: string;
  min?: number;
  max?: number;
  /** Least number of characters, unless it is empty. */
  minLength?: number;
  maxLength?: number | undefined;
  /** Shows a keyboard with digits. */
  digits?: boolean;
}

export function TextField({ value, onInput, type = 'text', focus = false, autocomplete = 'off', ...rest }: TextProps) {
  const { label, help, problem, optional, name, required, placeholder, min, max, minLength, maxLength, digits } = rest;
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (focus) {
      input.current?.focus();
    }
  }, []);
  return (
    <Field label={label} name={name} help={help} problem={problem} optional={optional ?? false}>
      {(bound) => (
        <input
          {...bound}
          // Preact's types allow other roles for each type; no role is set here.
          type={type as 'text'}
          value={value}
          required={required}
          placeholder={placeholder}
          min={min}
          max={max}
          minLength={minLength}
          maxLength={maxLength}
          inputMode={digits ? 'numeric' : undefined}
          autocomplete={autocomplete}
          autocapitalize="off"
          spellcheck={false}
          ref={input}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

interface AreaProps extends Common {
  value: string;
  onInput: (value: string) => void;
  rows?: number;
}

export function AreaField({ value, onInput, rows = 3, ...rest }: AreaProps) {
  return (
    <Field {...rest}>
      {(bound) => (
        <textarea
          {...bound}
          rows={rows}
          value={value}
          spellcheck={false}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

interface SelectProps<Value extends string> extends Common {
  value: Value;
  options: readonly (readonly [Value, string])[];
  required?: boolean;
  onChange: (value: Value) => void;
}

export function SelectField<Value extends string>({ value, options, required, onChange, ...rest }: SelectProps<Value>) {
  return (
    <Field {...rest}>
      {(bound) => (
        <select {...bound} required={required} value={value} onChange={(event) => onChange(event.currentTarget.value as Value)}>
          {options.map(([option, text]) => (
            <option key={option} value={option}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

interface CheckProps {
  label: string;
  help?: ComponentChildren;
  checked: boolean;
  onChange: (checked: boolean) => void;
}

export function CheckField({ label, help, checked, onChange }: CheckProps) {
  const id = useId();
  return (
    <div class="field check">
      <input
        id={id}
        type="checkbox"
        checked={checked}
        aria-describedby={help ? `${id}-help` : undefined}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      <label for={id}>{label}</label>
      {help && (
        <p id={`${id}-help`} class="help">
          {help}
        </p>
      )}
    </div>
  );
}

interface ChoiceProps<Value extends string> {
  label: string;
  value: Value;
  options: readonly (readonly [Value, string])[];
  onChange: (value: Value) => void;
}

/** One of a few values, beside each other. */
export function Choice<Value extends string>({ label, value, options, onChange }: ChoiceProps<Value>) {
  const name = useId();
  return (
    <fieldset class="choice">
      <legend class="hidden">{label}</legend>
      {options.map(([option, text]) => (
        <label key={option}>
          <input type="radio" name={name} checked={option === value} onChange={() => onChange(option)} />
          <span>{text}</span>
        </label>
      ))}
    </fieldset>
  );
}
