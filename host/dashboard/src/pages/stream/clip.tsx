import { useState } from 'preact/hooks';
import { answer, api, once, onceKey } from '../../api';
import { sats } from '../../format';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { useConfig, type StreamDetail } from '../../store';
import { FormDialog, TextField, toast } from '../../ui';

/** Seconds of a clip when nothing is entered, and the most. */
const SECONDS = '30';
const SECONDS_MAX = 600;

/** Makes a clip of the newest seconds. The price shows before. */
export function ClipDialog({ stream, onClose }: { stream: StreamDetail; onClose: () => void }) {
  const texts = t().clips;
  const [title, setTitle] = useState('');
  const [seconds, setSeconds] = useState(SECONDS);
  const [key] = useState(onceKey);
  const price = useConfig().data?.fees.clipSats;
  const making = useAction(async () => {
    await answer(
      api.POST('/api/streams/{id}/clips', {
        params: { path: { id: stream.id }, ...once(key) },
        body: { lastSeconds: Number(seconds), title },
      }),
    );
    toast(texts.begun);
    onClose();
  });
  return (
    <FormDialog
      title={texts.makeTitle(stream.label)}
      action={texts.make}
      busy={making.busy}
      failure={making.failure}
      onSubmit={() => void making.run()}
      onClose={onClose}
    >
      <TextField
        label={texts.lastSeconds}
        help={texts.lastSecondsHelp}
        name="lastSeconds"
        type="number"
        required
        min={1}
        max={SECONDS_MAX}
        value={seconds}
        onInput={setSeconds}
      />
      <TextField label={texts.title} name="title" optional maxLength={128} value={title} onInput={setTitle} />
      {price !== undefined && <p class="muted">{price === 0 ? texts.free : texts.price(sats(price))}</p>}
    </FormDialog>
  );
}
