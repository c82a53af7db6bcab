import { useEffect, useState } from 'preact/hooks';
import { answer, api, once, type Schema } from '../../api';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { useStream, useStreams } from '../../store';
import { CheckField, Choice, FormDialog, Note, ReadNote, SelectField, TextField } from '../../ui';
import type { ApiKey } from './index';

type KeyType = ApiKey['type'];
type Scope = Schema<'KeyScope'>;

const SCOPES: readonly Scope[] = ['read', 'manage', 'webhooks'];
const LABEL_CHARS_MAX = 128;

/** A key as it is shown once. */
export interface Created {
  type: KeyType;
  scopes: Scope[];
  key: string;
}

interface Props {
  onCreated: (created: Created) => Promise<void>;
  onClose: () => void;
}

/** Asks for kind, name and rights of a new key. */
export function CreateDialog({ onCreated, onClose }: Props) {
  const texts = t().keys;
  const [type, setType] = useState<KeyType>('permanent');
  const [label, setLabel] = useState('');
  const [scopes, setScopes] = useState<Scope[]>(['read']);
  const [endsWithSession, setEnds] = useState(false);
  const [destination, setDestination] = useState('');
  const [isEmpty, setEmpty] = useState(false);
  const creating = useAction(async (attempt) => {
    const body: Schema<'NewApiKey'> =
      type === 'public' ? { type, label, destinationId: Number(destination) } : { type, label, scopes, endsWithSession };
    const { key } = await answer(api.POST('/api/keys', { body, params: once(attempt) }));
    await onCreated({ type, scopes: type === 'public' ? [] : scopes, key });
  });
  const submit = (): void => {
    const lacksScope = type === 'permanent' && scopes.length === 0;
    setEmpty(lacksScope);
    if (!lacksScope) {
      void creating.run();
    }
  };
  const kinds = (['permanent', 'public'] as const).map((kind) => [kind, texts.kinds[kind]] as const);
  return (
    <FormDialog title={texts.add} action={texts.create} busy={creating.busy} failure={creating.failure} onSubmit={submit} onClose={onClose}>
      <div class="stack">
        <div>
          <Choice label={texts.kind} value={type} options={kinds} onChange={setType} />
        </div>
        <p class="small muted">{texts.about[type]}</p>
      </div>
      <TextField
        label={texts.label}
        name="label"
        help={texts.labelHelp}
        optional
        focus
        maxLength={LABEL_CHARS_MAX}
        placeholder={texts.example}
        value={label}
        onInput={setLabel}
      />
      {type === 'public' ? (
        <DestinationField value={destination} onChange={setDestination} />
      ) : (
        <>
          <Scopes chosen={scopes} problem={isEmpty ? texts.noScopes : null} onChange={setScopes} />
          <CheckField label={texts.ends} help={texts.endsHelp} checked={endsWithSession} onChange={setEnds} />
        </>
      )}
    </FormDialog>
  );
}

interface ScopesProps {
  chosen: readonly Scope[];
  problem: string | null;
  onChange: (chosen: Scope[]) => void;
}

function Scopes({ chosen, problem, onChange }: ScopesProps) {
  const texts = t().keys;
  const set = (scope: Scope, isChosen: boolean): void => onChange(SCOPES.filter((each) => (each === scope ? isChosen : chosen.includes(each))));
  return (
    <fieldset class="key-scopes">
      <legend>{texts.scopes}</legend>
      {SCOPES.map((scope) => (
        <CheckField
          key={scope}
          label={texts.scopeNames[scope]}
          help={texts.scopeHelp[scope]}
          checked={chosen.includes(scope)}
          onChange={(isChosen) => set(scope, isChosen)}
        />
      ))}
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </fieldset>
  );
}

interface FieldProps {
  /** Identifier of the destination; empty before the choice. */
  value: string;
  onChange: (value: string) => void;
}

/** A stream, then its destination that viewers can play. */
function DestinationField({ value, onChange }: FieldProps) {
  const texts = t().keys;
  const streams = useStreams();
  const [stream, setStream] = useState('');
  const items = streams.data?.items ?? [];
  const options = items.map(({ id, label }) => [String(id), label] as const);
  const choose = (chosen: string): void => {
    setStream(chosen);
    onChange('');
  };
  return (
    <>
      <ReadNote of={streams} />
      {streams.data && items.length === 0 ? (
        <Note kind="warning">
          <p>{texts.noStreams}</p>
        </Note>
      ) : (
        <SelectField label={texts.stream} required value={stream} options={[['', texts.choose], ...options]} onChange={choose} />
      )}
      {stream !== '' && <OfStream key={stream} id={Number(stream)} value={value} onChange={onChange} />}
    </>
  );
}

function OfStream({ id, value, onChange }: FieldProps & { id: number }) {
  const texts = t().keys;
  const stream = useStream(id);
  const playback = stream.data?.playback ?? [];
  const only = playback.length === 1 ? playback[0]?.destinationId : undefined;
  useEffect(() => {
    if (only !== undefined) {
      onChange(String(only));
    }
  }, [only]);
  if (stream.data && playback.length === 0) {
    return (
      <Note kind="warning">
        <p>{texts.noPlayback}</p>
      </Note>
    );
  }
  const options = playback.map(({ destinationId }) => [String(destinationId), texts.numbered(destinationId)] as const);
  return (
    <>
      <ReadNote of={stream} />
      <SelectField label={texts.destination} required value={value} options={[['', texts.choose], ...options]} onChange={onChange} />
    </>
  );
}
