import { useMemo, useState } from 'preact/hooks';
import { answer, api, once, type Schema } from '../../api';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import {
  configOf,
  fieldsOf,
  initial,
  plain,
  problemsOf,
  type FormField,
  type JsonSchema,
  type Problem,
  type Values,
} from '../../schema';
import type { Destination, DestinationType, StreamDetail } from '../../store';
import { FormDialog, Note, SchemaFields, SelectField, TextField } from '../../ui';
import { useTypes } from './names';

interface Model {
  fields: FormField[];
  values: Values;
  problems: Readonly<Record<string, Problem>>;
  set: (path: string, value: string | boolean) => void;
  /** The configuration; `null` if a value has a problem, which is then shown. */
  finish: () => Record<string, unknown> | null;
}

/** The form of a destination type. */
function useModel(type: DestinationType | undefined, config?: Record<string, unknown>): Model {
  const fields = useMemo(() => (type ? fieldsOf(type.configSchema as JsonSchema) : []), [type?.name]);
  const [edited, setEdited] = useState<{ type: string | undefined; values: Values } | null>(null);
  /** The type whose form was submitted. */
  const [tried, setTried] = useState<string | null>(null);
  const values = edited && edited.type === type?.name ? edited.values : initial(fields, config);
  const problems = problemsOf(fields, values);
  return {
    fields,
    values,
    problems: type && tried === type.name ? problems : {},
    set: (path, value) => setEdited({ type: type?.name, values: { ...values, [path]: value } }),
    finish() {
      setTried(type?.name ?? null);
      return Object.keys(problems).length === 0 ? configOf(fields, values) : null;
    },
  };
}

/** Types that a form offers before the others. */
const FIRST_TYPES = ['self-hosted', 'rtmp', 'cloud-archive'];

/** The types in the order of the form: the first ones, then by title. */
function offered(types: readonly DestinationType[]): DestinationType[] {
  const first = FIRST_TYPES.flatMap((name) => types.find((type) => type.name === name) ?? []);
  return [...first, ...types.filter((type) => !first.includes(type))];
}

interface AddProps {
  stream: StreamDetail;
  /** The type that is chosen at first. */
  chosen?: string;
  onAdded: (id: number) => Promise<void>;
  onClose: () => void;
}

export function AddDestination({ stream, chosen = '', onAdded, onClose }: AddProps) {
  const texts = t().destination;
  const types = offered(useTypes());
  const [name, setName] = useState(chosen);
  const type = types.find((type) => type.name === name);
  const model = useModel(type);
  const options = [['', texts.choose] as const, ...types.map(({ name, title }) => [name, title] as const)];
  const adding = useAction(async (key, config: Record<string, unknown>) => {
    // The form has the fields of the type's schema, which `tsc` does not know.
    const body = { type: name, config } as Schema<'NewDestination'>;
    const params = { path: { id: stream.id }, ...once(key) };
    const { id } = await answer(api.POST('/api/streams/{id}/destinations', { params, body }));
    await onAdded(id);
    onClose();
  });
  const submit = (): void => {
    const config = model.finish();
    if (type && config) {
      void adding.run(config);
    }
  };
  return (
    <FormDialog
      title={texts.addTitle}
      action={texts.add}
      busy={adding.busy}
      failure={adding.failure}
      onSubmit={submit}
      onClose={onClose}
    >
      {types.length === 0 ? (
        <Note kind="warning">{texts.noTypes}</Note>
      ) : (
        <SelectField
          label={texts.type}
          help={plain((type?.configSchema as JsonSchema | undefined)?.description)}
          required
          value={name}
          options={options}
          onChange={(next) => {
            setName(next);
            adding.clear();
          }}
        />
      )}
      <SchemaFields fields={model.fields} values={model.values} problems={model.problems} onChange={model.set} />
    </FormDialog>
  );
}

interface EditProps {
  stream: StreamDetail;
  destination: Destination;
  type: DestinationType | undefined;
  name: string;
  onSaved: () => Promise<void>;
  onClose: () => void;
}

function hasSecret(fields: readonly FormField[]): boolean {
  return fields.some((field) => field.kind === 'secret' || (field.kind === 'group' && hasSecret(field.fields)));
}

export function EditDestination({ stream, destination, type, name, onSaved, onClose }: EditProps) {
  const texts = t().destination;
  const config = destination.config as Record<string, unknown> | null;
  const model = useModel(type, config ?? {});
  const [start, setStart] = useState(String(destination.startDelaySeconds));
  const [stop, setStop] = useState(String(destination.stopDelaySeconds));
  const isEditable = type !== undefined && config !== null;
  const saving = useAction(async (_, changed: Record<string, unknown>) => {
    const path = { id: stream.id, destId: destination.id };
    const delays = { startDelaySeconds: Number(start), stopDelaySeconds: Number(stop) };
    const body = isEditable ? { config: changed, ...delays } : delays;
    await answer(api.PATCH('/api/streams/{id}/destinations/{destId}', { params: { path }, body }));
    await onSaved();
    onClose();
  });
  const submit = (): void => {
    const changed = model.finish();
    if (changed) {
      void saving.run(changed);
    }
  };
  return (
    <FormDialog
      title={texts.editTitle(name)}
      action={t().ui.save}
      busy={saving.busy}
      failure={saving.failure}
      onSubmit={submit}
      onClose={onClose}
    >
      {isEditable ? (
        <SchemaFields fields={model.fields} values={model.values} problems={model.problems} onChange={model.set} />
      ) : (
        <Note kind="warning">{texts.noConfig}</Note>
      )}
      {isEditable && hasSecret(model.fields) && <Note>{texts.secretKept}</Note>}
      <details>
        <summary>{texts.delays}</summary>
        <div class="stack">
          <TextField label={texts.startDelay} name="startDelaySeconds" type="number" min={0} value={start} onInput={setStart} />
          <TextField label={texts.stopDelay} name="stopDelaySeconds" type="number" min={0} value={stop} onInput={setStop} />
        </div>
      </details>
    </FormDialog>
  );
}
