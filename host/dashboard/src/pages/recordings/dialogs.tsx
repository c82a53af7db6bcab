import { useState } from 'preact/hooks';
import { answer, api, once } from '../../api';
import { sats } from '../../format';
import { t } from '../../i18n';
import { useBalance, useConfig } from '../../store';
import { Choice, Confirm, ErrorNote, Figures, Note, toast } from '../../ui';
import { shortName, type Recording } from './data';

interface Props {
  recording: Recording;
  reload: () => Promise<void>;
  onClose: () => void;
}

/** Asks before a paid upload. The balance is read when the dialog opens. */
export function RecoverDialog({ recording: { fileName, error }, reload, onClose }: Props) {
  const texts = t().recordings;
  const config = useConfig();
  const balance = useBalance();
  const fee = config.data?.fees.archiveRecoverySats;
  const recover = async (key: string): Promise<void> => {
    const { message } = await answer(api.POST('/api/archives/recover-pay', { body: { fileName }, params: once(key) }));
    toast(message);
    await Promise.all([reload(), balance.reload()]);
  };
  const isTooLittle = fee !== undefined && balance.data !== null && balance.data.balance < fee;
  return (
    <Confirm title={texts.recoverTitle(shortName(fileName))} action={texts.recover} danger={false} work={recover} onClose={onClose}>
      {error !== null && (
        <Note kind="bad">
          <p>{error}</p>
        </Note>
      )}
      <Figures
        items={[
          [texts.fee, fee === undefined ? '–' : fee === 0 ? texts.free : sats(fee)],
          [texts.balance, balance.data ? sats(balance.data.balance) : '–'],
        ]}
      />
      <ErrorNote failure={balance.failure ?? config.failure} />
      {isTooLittle && (
        <Note kind="warning">
          <p>{texts.tooLittle}</p>
          <a href="/wallet">{texts.topUp}</a>
        </Note>
      )}
      <p>{texts.recoverText}</p>
      {fee !== 0 && <p class="muted">{texts.recoverRefund}</p>}
    </Confirm>
  );
}

type Place = 'here' | 'both';

/** Asks what is deleted: the local copy, or the object at the store too. */
export function DeleteDialog({ recording: { id, fileName }, reload, onClose }: Props) {
  const texts = t().recordings;
  const [place, setPlace] = useState<Place>('here');
  const places = (['here', 'both'] as const).map((name) => [name, texts.places[name]] as const);
  const remove = async (): Promise<void> => {
    await answer(api.DELETE('/api/archives/{id}', { params: { path: { id }, query: { remote: place === 'both' } } }));
    toast(texts.deleted(fileName));
    await reload();
  };
  return (
    <Confirm title={texts.deleteTitle(shortName(fileName))} action={texts.delete} work={remove} onClose={onClose}>
      <div>
        <Choice label={texts.where} value={place} options={places} onChange={setPlace} />
      </div>
      <p>{texts.deleteTexts[place]}</p>
    </Confirm>
  );
}
