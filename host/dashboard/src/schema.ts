// The model of a form that is made from a JSON Schema, such as a driver's for the configuration of a destination: fields,
// values, problems, and the JSON that is sent. It knows what our drivers use: strings, numbers, booleans, enums, lists of
// strings, objects inside objects, references inside the schema, and `oneOf` with one form for each alternative.

export interface JsonSchema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  format?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  items?: JsonSchema;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  oneOf?: JsonSchema[];
  anyOf?: JsonSchema[];
  allOf?: JsonSchema[];
  $ref?: string;
  $defs?: Record<string, JsonSchema>;
  writeOnly?: boolean;
  'x-secret'?: boolean;
  /** Names of the fields that a form shows first. */
  'x-order'?: string[];
}

interface Base {
  /** Names from the outermost object, joined with dots; the key of the value. */
  path: string;
  /** Name in its object. */
  name: string;
  title: string;
  help: string;
  required: boolean;
  /** Always shown: it is required, or the schema puts it first and its help tells when it may be empty. */
  isMain: boolean;
}

export type FormField =
  | (Base & {
      kind: 'text' | 'secret';
      minLength: number;
      maxLength: number | undefined;
      pattern: string | undefined;
      fallback: string;
    })
  | (Base & { kind: 'number'; minimum: number | undefined; maximum: number | undefined; isWhole: boolean; fallback: string })
  | (Base & { kind: 'boolean'; fallback: boolean })
  | (Base & { kind: 'choice'; options: string[]; isBoolean: boolean; fallback: string })
  | (Base & { kind: 'list'; fallback: string })
  | (Base & { kind: 'group'; fields: FormField[] })
  | (Base & { kind: 'variants'; variants: Variant[] });

/** One alternative of `oneOf`. */
export interface Variant {
  title: string;
  /** Fields whose value is given by the alternative. */
  constants: Record<string, unknown>;
  fields: FormField[];
}

/** Values by path: texts as typed, booleans, and for alternatives their index as text. */
export type Values = Readonly<Record<string, string | boolean>>;

export type Problem = 'required' | 'number' | 'whole' | 'minimum' | 'maximum' | 'short' | 'long' | 'pattern';

/** Deepest nesting; a schema that refers to itself ends there. */
const DEPTH_MAX = 4;

/** The fields of an object schema: those of `x-order`, then required ones, then the others. */
export function fieldsOf(schema: JsonSchema): FormField[] {
  return objectFields(schema, schema, '', 0);
}

function objectFields(root: JsonSchema, given: JsonSchema, prefix: string, depth: number): FormField[] {
  if (depth > DEPTH_MAX) {
    return [];
  }
  const schema = resolve(root, given);
  const required = new Set(schema.required);
  const order = schema['x-order'] ?? [];
  const own = Object.entries(schema.properties ?? {}).map(([name, property]) => {
    const place = { prefix, name, required: required.has(name), isMain: required.has(name) || order.includes(name) };
    return fieldOf(root, property, place, depth);
  });
  const rank = ({ name, isMain }: FormField): number => (order.includes(name) ? order.indexOf(name) : order.length + (isMain ? 0 : 1));
  const sorted = own.sort((left, right) => rank(left) - rank(right));
  const alternatives = (schema.oneOf ?? schema.anyOf ?? [])
    .map((option) => resolve(root, option))
    .filter((option) => option.properties);
  if (alternatives.length < 2) {
    return sorted;
  }
  const path = prefix ? `${prefix}.*` : '*';
  const variants = alternatives.map((option) => variantOf(root, option, prefix, depth));
  return [...sorted, { kind: 'variants', path, name: '*', title: '', help: '', required: true, isMain: true, variants }];
}

function variantOf(root: JsonSchema, option: JsonSchema, prefix: string, depth: number): Variant {
  const constants: Record<string, unknown> = {};
  for (const [name, property] of Object.entries(option.properties ?? {})) {
    const { const: value, enum: values } = resolve(root, property);
    const fixed = value ?? (values?.length === 1 ? values[0] : undefined);
    if (fixed !== undefined) {
      constants[name] = fixed;
    }
  }
  const fields = objectFields(root, option, prefix, depth + 1).filter(({ name }) => !(name in constants));
  const title = option.title ?? Object.values(constants).join(', ');
  return { title: title || words(fields[0]?.name ?? ''), constants, fields };
}

/** The schema without references, with a single `allOf` and an optional value taken apart. */
function resolve(root: JsonSchema, schema: JsonSchema, depth = 0): JsonSchema {
  const { $ref, allOf, anyOf, ...rest } = schema;
  const name = $ref?.startsWith('#/$defs/') ? $ref.slice('#/$defs/'.length) : undefined;
  const target = name === undefined ? undefined : root.$defs?.[name];
  const only = allOf?.length === 1 ? allOf[0] : anyOf?.filter(({ type }) => type !== 'null');
  const inner = target ?? (Array.isArray(only) ? (only.length === 1 ? only[0] : undefined) : only);
  return inner && depth < DEPTH_MAX ? { ...resolve(root, inner, depth + 1), ...rest } : schema;
}

interface Place {
  prefix: string;
  name: string;
  required: boolean;
  isMain: boolean;
}

function fieldOf(root: JsonSchema, given: JsonSchema, { prefix, name, required, isMain }: Place, depth: number): FormField {
  const schema = resolve(root, given);
  const path = prefix ? `${prefix}.${name}` : name;
  const base = {
    path,
    name,
    title: schema.title ?? words(name),
    help: plain(schema.description),
    required,
    isMain,
  };
  const declared = [schema.type ?? []].flat();
  const isNullable = declared.includes('null');
  const types = declared.filter((type) => type !== 'null');
  const fallback = typeof schema.default === 'string' || typeof schema.default === 'number' ? String(schema.default) : '';
  const options = choices(schema);
  if (options) {
    return { ...base, kind: 'choice', options, isBoolean: false, fallback: fallback || (required ? (options[0] ?? '') : '') };
  }
  if (schema.properties ?? schema.oneOf?.some((option) => resolve(root, option).properties)) {
    return { ...base, kind: 'group', fields: objectFields(root, schema, path, depth + 1) };
  }
  switch (types[0]) {
    case 'boolean':
      // Without a default, "not set" differs from both values.
      return isNullable && typeof schema.default !== 'boolean'
        ? { ...base, kind: 'choice', options: ['true', 'false'], isBoolean: true, fallback: '' }
        : { ...base, kind: 'boolean', fallback: schema.default === true };
    case 'integer':
    case 'number':
      return {
        ...base,
        kind: 'number',
        minimum: schema.minimum,
        maximum: schema.maximum,
        isWhole: types[0] === 'integer',
        fallback,
      };
    case 'array': {
      const lines = Array.isArray(schema.default) ? schema.default.join('\n') : '';
      return { ...base, kind: 'list', fallback: lines };
    }
    default: {
      const isSecret = schema['x-secret'] === true || schema.format === 'password' || schema.writeOnly === true;
      const { minLength = 0, maxLength, pattern } = schema;
      return { ...base, kind: isSecret ? 'secret' : 'text', minLength, maxLength, pattern, fallback };
    }
  }
}

/** The texts of an `enum`, or of a `oneOf` of constants. */
function choices({ enum: values, oneOf }: JsonSchema): string[] | null {
  const found =
    values ?? (oneOf?.every((option) => option.const !== undefined) ? oneOf.map((option) => option.const) : undefined);
  return found?.length ? found.filter((value) => value !== null).map(String) : null;
}

/** A description without line breaks and marks of code. */
export function plain(description: string | undefined): string {
  return description?.replaceAll('\n', ' ').replaceAll('`', '') ?? '';
}

/** `dvrSeconds` as `Dvr seconds`. */
export function words(name: string): string {
  const spaced = name
    .replace(/([a-z0-9])([A-Z])/g, '$1 $2')
    .replace(/[_-]+/g, ' ')
    .toLowerCase();
  return spaced.charAt(0).toUpperCase() + spaced.slice(1);
}

type Json = Readonly<Record<string, unknown>>;

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Values for a new form, or for one that changes `config`. */
export function initial(fields: readonly FormField[], config?: Json): Values {
  const values: Record<string, string | boolean> = {};
  for (const field of fields) {
    const given = config?.[field.name];
    switch (field.kind) {
      case 'group':
        Object.assign(values, initial(field.fields, isObject(given) ? given : undefined));
        break;
      case 'variants': {
        const chosen = config ? field.variants.findIndex(({ constants }) => holds(config, constants)) : 0;
        values[field.path] = String(Math.max(0, chosen));
        for (const [index, variant] of field.variants.entries()) {
          Object.assign(values, initial(variant.fields, index === chosen ? config : undefined));
        }
        break;
      }
      case 'boolean':
        values[field.path] = typeof given === 'boolean' ? given : field.fallback;
        break;
      case 'list':
        values[field.path] = Array.isArray(given) ? given.join('\n') : field.fallback;
        break;
      default:
        // The default of an optional text is shown as a hint, and not sent.
        values[field.path] =
          given !== undefined && given !== null
            ? String(given)
            : field.kind === 'choice' || field.kind === 'number'
              ? field.fallback
              : '';
    }
  }
  return values;
}

function holds(config: Json, constants: Json): boolean {
  return Object.entries(constants).every(([name, value]) => config[name] === value);
}

/** The JSON to send. Empty optional fields are left out. */
export function configOf(fields: readonly FormField[], values: Values): Record<string, unknown> {
  const config: Record<string, unknown> = {};
  for (const field of fields) {
    if (field.kind === 'group') {
      const inner = configOf(field.fields, values);
      if (field.required || Object.keys(inner).length > 0) {
        config[field.name] = inner;
      }
    } else if (field.kind === 'variants') {
      const variant = chosen(field, values);
      Object.assign(config, variant?.constants, variant && configOf(variant.fields, values));
    } else {
      const value = valueOf(field, values[field.path]);
      if (value !== undefined) {
        config[field.name] = value;
      }
    }
  }
  return config;
}

/** The alternative that is chosen. */
export function chosen(field: FormField & { kind: 'variants' }, values: Values): Variant | undefined {
  return field.variants[Number(values[field.path] ?? 0)];
}

function valueOf(field: FormField, value: string | boolean | undefined): unknown {
  if (field.kind === 'boolean') {
    return (value === true) === field.fallback && !field.required ? undefined : value === true;
  }
  const text = typeof value === 'string' ? value.trim() : '';
  if (field.kind === 'list') {
    const lines = text
      .split('\n')
      .map((line) => line.trim())
      .filter(Boolean);
    return lines.length > 0 || field.required ? lines : undefined;
  }
  if (text === '') {
    return field.required && field.kind !== 'number' ? '' : undefined;
  }
  if (field.kind === 'choice' && field.isBoolean) {
    return text === 'true';
  }
  return field.kind === 'number' ? Number(text) : text;
}

/** The problems by path. The service checks again; this saves a request. */
export function problemsOf(fields: readonly FormField[], values: Values): Record<string, Problem> {
  const problems: Record<string, Problem> = {};
  for (const field of fields) {
    if (field.kind === 'group') {
      const isUnused = !field.required && Object.keys(configOf(field.fields, values)).length === 0;
      Object.assign(problems, isUnused ? {} : problemsOf(field.fields, values));
    } else if (field.kind === 'variants') {
      Object.assign(problems, problemsOf(chosen(field, values)?.fields ?? [], values));
    } else {
      const problem = problemOf(field, values[field.path]);
      if (problem) {
        problems[field.path] = problem;
      }
    }
  }
  return problems;
}

function problemOf(field: FormField, value: string | boolean | undefined): Problem | null {
  const text = typeof value === 'string' ? value.trim() : '';
  if (field.kind === 'boolean' || (text === '' && !field.required)) {
    return null;
  }
  if (text === '') {
    return 'required';
  }
  switch (field.kind) {
    case 'number':
      return numberProblem(Number(text), field);
    case 'text':
    case 'secret':
      if (text.length < field.minLength) {
        return 'short';
      }
      if (field.maxLength !== undefined && text.length > field.maxLength) {
        return 'long';
      }
      return field.pattern !== undefined && !matches(field.pattern, text) ? 'pattern' : null;
    default:
      return null;
  }
}

function numberProblem(value: number, { isWhole, minimum, maximum }: FormField & { kind: 'number' }): Problem | null {
  if (!Number.isFinite(value)) {
    return 'number';
  }
  if (isWhole && !Number.isInteger(value)) {
    return 'whole';
  }
  if (minimum !== undefined && value < minimum) {
    return 'minimum';
  }
  return maximum !== undefined && value > maximum ? 'maximum' : null;
}

/** A pattern that this browser does not understand is left to the service. */
function matches(pattern: string, text: string): boolean {
  try {
    return new RegExp(pattern, 'u').test(text);
  } catch {
    return true;
  }
}

/** Whether a person or the configuration has set a field. */
export function isSet(field: FormField, values: Values): boolean {
  switch (field.kind) {
    case 'group':
      return field.fields.some((inner) => isSet(inner, values));
    case 'variants':
      return true;
    default:
      return ![undefined, '', field.fallback].includes(values[field.path]);
  }
}
