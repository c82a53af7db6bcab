import { useState } from 'preact/hooks';
import { answer, api, once, type Schema } from '../../api';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { useStreams } from '../../store';
import { CheckField, FormDialog, ReadNote, SelectField, TextField } from '../../ui';
import { EVENTS, type WebhookEvent } from './data';
import { withKey } from './key';

const URL_CHARS_MAX = 2_048;
/** The service makes the secret. */
const AUTO = 'auto';

type SecretKind = 'auto' | 'own' | 'none';

export interface Created {
  id: number;
  /** The secret that the service made, if it was asked to. */
  secret: string | null;
}

interface Props {
  onCreated: (created: Created) => void;
  onClose: () => void;
}

/** Asks for the target, events, stream and secret of a new webhook. */
export function CreateDialog({ onCreated, onClose }: Props) {
  const texts = t().webhooks;
  const [url, setUrl] = useState('');
  const [events, setEvents] = useState<ReadonlySet<WebhookEvent>>(new Set(['stream.started', 'stream.ended']));
  const [stream, setStream] = useState('');
  const [kind, setKind] = useState<SecretKind>('auto');
  const [own, setOwn] = useState('');
  const [isEmpty, setEmpty] = useState(false);
  const creating = useAction(async (key) => {
    const secret = { auto: AUTO, own, none: null }[kind];
    const body: Schema<'NewWebhook'> = {
      url: url.trim(),
      events: [...events],
      stream_key_id: stream === '' ? null : Number(stream),
      ...(secret === null ? {} : { secret }),
    };
    const made = await withKey((headers) => answer(api.POST('/api/webhooks', { headers, body, params: once(key) })));
    onCreated({ id: made.id, secret: made.secret ?? null });
  });
  const submit = (): void => {
    setEmpty(events.size === 0);
    if (events.size > 0) {
      void creating.run();
    }
  };
  const kinds = (['auto', 'own', 'none'] as const).map((kind) => [kind, texts.secretKinds[kind]] as const);
  return (
    <FormDialog title={texts.add} action={texts.create} busy={creating.busy} failure={creating.failure} onSubmit={submit} onClose={onClose}>
      <TextField
        label={texts.url}
        name="url"
        help={texts.urlHelp}
        type="url"
        required
        focus
        maxLength={URL_CHARS_MAX}
        placeholder="https://example.com/satcast"
        value={url}
        onInput={setUrl}
      />
      <Events chosen={events} problem={isEmpty ? texts.noEvents : null} onChange={setEvents} />
      <StreamField value={stream} onChange={setStream} />
      <SelectField label={texts.secret} help={texts.secretHelp[kind]} value={kind} options={kinds} onChange={setKind} />
      {kind === 'own' && (
        <TextField label={texts.ownSecret} name="secret" help={texts.ownSecretHelp} type="password" autocomplete="new-password" required value={own} onInput={setOwn} />
      )}
    </FormDialog>
  );
}

interface EventsProps {
  chosen: ReadonlySet<WebhookEvent>;
  problem: string | null;
  onChange: (chosen: ReadonlySet<WebhookEvent>) => void;
}

function Events({ chosen, problem, onChange }: EventsProps) {
  const texts = t().webhooks;
  const set = (event: WebhookEvent, isChosen: boolean): void => {
    const others = [...chosen].filter((other) => other !== event);
    onChange(new Set(isChosen ? [...others, event] : others));
  };
  return (
    <fieldset class="webhook-events">
      <legend>{texts.events}</legend>
      <div class="webhook-subjects">
        {EVENTS.map(([subject, events]) => (
          <div key={subject} role="group" aria-label={texts.subjects[subject]} class="webhook-subject">
            <p class="small muted">{texts.subjects[subject]}</p>
            {events.map((event) => (
              <CheckField key={event} label={texts.eventNames[event]} checked={chosen.has(event)} onChange={(isChosen) => set(event, isChosen)} />
            ))}
          </div>
        ))}
      </div>
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </fieldset>
  );
}

function StreamField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const texts = t().webhooks;
  const streams = useStreams();
  const options = (streams.data?.items ?? []).map(({ id, label }) => [String(id), label] as const);
  return (
    <>
      <SelectField label={texts.scope} value={value} options={[['', texts.allStreams], ...options]} onChange={onChange} />
      <ReadNote of={streams} />
    </>
  );
}
