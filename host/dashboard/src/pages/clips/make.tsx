import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { answer, api, once } from '../../api';
import { sats } from '../../format';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { useConfig } from '../../store';
import { FormDialog, TextField, toast } from '../../ui';

/** Most seconds of a clip. */
export const SECONDS_MAX = 600;

/** The part of a stream that a clip shows; times in Unix milliseconds. */
export type Range = { lastSeconds: number } | { from: number; to: number };

interface Props {
  /** The stream or recording. */
  name: string;
  streamKeyId: number;
  /** The range of the fields; `null`: they have none, and show why. */
  range: () => Range | null;
  /** The fields of the range. */
  children: ComponentChildren;
  onClose: () => void;
}

/** Makes a clip. The price shows before. */
export function MakeDialog({ name, streamKeyId, range, children, onClose }: Props) {
  const texts = t().clips;
  const [title, setTitle] = useState('');
  const price = useConfig().data?.fees.clipSats;
  const making = useAction(async (attempt) => {
    const wanted = range();
    if (wanted) {
      await answer(
        api.POST('/api/streams/{id}/clips', {
          params: { path: { id: streamKeyId }, ...once(attempt) },
          body: { ...wanted, title },
        }),
      );
      toast(texts.begun);
      onClose();
    }
  });
  return (
    <FormDialog
      title={texts.makeTitle(name)}
      action={texts.make}
      busy={making.busy}
      failure={making.failure}
      onSubmit={() => void making.run()}
      onClose={onClose}
    >
      {children}
      <TextField label={texts.title} name="title" optional maxLength={128} value={title} onInput={setTitle} />
      {price !== undefined && <p class="muted">{price === 0 ? texts.free : texts.price(sats(price))}</p>}
    </FormDialog>
  );
}
