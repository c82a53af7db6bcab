import { useEffect, useState } from 'preact/hooks';
import { answer, api, once } from '../../api';
import { sats } from '../../format';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { useBalance, useConfig } from '../../store';
import { Button, Choice, Confirm, CopyField, Dialog, DialogActions, ErrorNote, Figures, Note, Skeleton, toast } from '../../ui';
import { signed, type Recording } from './data';

interface Props {
  recording: Recording;
  onClose: () => void;
}

interface ChangeProps extends Props {
  reload: () => Promise<void>;
}

/** The file without its folders, for titles. */
function shortName(fileName: string): string {
  return fileName.slice(fileName.lastIndexOf('/') + 1);
}

/** Asks the service for an address, and shows it. */
export function DownloadDialog({ recording: { id, fileName }, onClose }: Props) {
  const texts = t().recordings;
  const [found, setFound] = useState<Recording | null>(null);
  const signing = useAction(async () => setFound(await signed(id)));
  useEffect(() => void signing.run(), []);
  const url = found?.url ?? '';
  const isAddress = url.startsWith('http');
  return (
    <Dialog title={texts.downloadTitle(shortName(fileName))} onClose={onClose}>
      <ErrorNote failure={signing.failure} retry={() => void signing.run()} />
      {signing.busy && <Skeleton rows={2} />}
      {found && !isAddress && (
        <Note kind="warning">
          <p>{texts.noAddress}</p>
          <p>{url}</p>
        </Note>
      )}
      {isAddress && (
        <>
          <p>{texts.downloadText}</p>
          <CopyField label={texts.address} value={url} secret />
        </>
      )}
      <DialogActions>
        <Button onClick={onClose}>{t().ui.close}</Button>
        {isAddress && (
          <a class="button main" href={url} rel="noreferrer" download>
            {texts.getFile}
          </a>
        )}
      </DialogActions>
    </Dialog>
  );
}

/** Asks before a paid upload. The balance is read when the dialog opens. */
export function RecoverDialog({ recording: { fileName, error }, reload, onClose }: ChangeProps) {
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
export function DeleteDialog({ recording: { id, fileName }, reload, onClose }: ChangeProps) {
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
