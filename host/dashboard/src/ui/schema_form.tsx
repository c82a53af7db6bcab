import type { ComponentChildren } from 'preact';
import { t } from '../i18n';
import { chosen, isSet, type FormField, type Problem, type Values } from '../schema';
import { AreaField, CheckField, SelectField, TextField } from './field';

interface FormProps {
  fields: readonly FormField[];
  values: Values;
  problems: Readonly<Record<string, Problem>>;
  onChange: (path: string, value: string | boolean) => void;
}

/** Most fields that are shown at once; of more, the optional ones are folded. */
const OPEN_FIELDS_MAX = 6;

/** The controls of a form that is made from a schema. */
export function SchemaFields(props: FormProps) {
  const main = props.fields.filter((field) => field.isMain);
  const optional = props.fields.filter((field) => !field.isMain);
  const isFolded = props.fields.length > OPEN_FIELDS_MAX && optional.length > 1;
  const isOpen = optional.some((field) => props.problems[field.path] !== undefined || isSet(field, props.values));
  const all = (fields: readonly FormField[]) => fields.map((field) => <Control key={field.path} field={field} {...props} />);
  return (
    <>
      {all(main)}
      {isFolded ? (
        <details open={isOpen}>
          <summary>{t().ui.moreFields}</summary>
          <div class="stack">{all(optional)}</div>
        </details>
      ) : (
        all(optional)
      )}
    </>
  );
}

function yesOrNo(option: string): string {
  return option === 'true' ? t().ui.yes : t().ui.no;
}

/** A help text with links, which stand in parentheses; other addresses are examples. */
function linked(help: string): ComponentChildren {
  return help.split(/(?<=\()(https:\/\/[^\s()]+)(?=\))/).map((part, index) =>
    index % 2 === 0 ? (
      part
    ) : (
      <a key={part} href={part} target="_blank" rel="noreferrer">
        {part}
      </a>
    ),
  );
}

function Control({ field, values, problems, onChange, ...rest }: FormProps & { field: FormField }) {
  const texts = t().fields as Readonly<Record<string, string>>;
  const label = texts[field.name] ?? field.title;
  const value = values[field.path];
  const problem = problems[field.path];
  const common = {
    // Name of the field in errors of the service.
    name: `config.${field.path}`,
    label,
    help: field.help && linked(field.help),
    optional: !field.isMain,
    problem: problem && t().problems[problem],
  };
  const text = typeof value === 'string' ? value : '';
  const set = (next: string): void => onChange(field.path, next);
  switch (field.kind) {
    case 'boolean':
      return (
        <CheckField label={label} help={field.help} checked={value === true} onChange={(next) => onChange(field.path, next)} />
      );
    case 'choice': {
      const empty = field.required ? [] : ([['', t().ui.notSet]] as const);
      return (
        <SelectField
          {...common}
          value={text}
          options={[...empty, ...field.options.map((option) => [option, field.isBoolean ? yesOrNo(option) : option] as const)]}
          onChange={set}
        />
      );
    }
    case 'list':
      return <AreaField {...common} help={`${field.help} ${t().ui.onePerLine}`.trim()} value={text} onInput={set} />;
    case 'number':
      return <TextField {...common} type="number" value={text} placeholder={field.fallback} onInput={set} />;
    case 'group':
      return (
        <fieldset class="group">
          <legend>{label}</legend>
          {field.help && <p class="help">{field.help}</p>}
          <SchemaFields {...rest} fields={field.fields} values={values} problems={problems} onChange={onChange} />
        </fieldset>
      );
    case 'variants': {
      const options = field.variants.map(({ title }, index) => [String(index), title] as const);
      return (
        <>
          <SelectField label={t().ui.variant} value={text} options={options} onChange={set} />
          <SchemaFields
            {...rest}
            fields={chosen(field, values)?.fields ?? []}
            values={values}
            problems={problems}
            onChange={onChange}
          />
        </>
      );
    }
    case 'secret':
      return <TextField {...common} type="password" autocomplete="new-password" value={text} onInput={set} />;
    case 'text':
      return <TextField {...common} value={text} placeholder={field.fallback} onInput={set} />;
  }
}
