import { useEffect, useState } from 'preact/hooks';
import { answer, api } from '../../api';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { Button, Confirm, CopyField, Dialog, DialogActions, ErrorNote, FormDialog, Note, Skeleton, TextField, toast } from '../../ui';
import { ShareDialog } from '../recordings/share';
import { nameOf, signed, type Clip } from './data';

interface Props {
  clip: Clip;
  onClose: () => void;
}

interface ChangeProps extends Props {
  reload: () => Promise<void>;
}

/** Asks the service for an address, and shows it. */
export function DownloadDialog({ clip, onClose }: Props) {
  const texts = t().clips;
  const [found, setFound] = useState<Clip | null>(null);
  const signing = useAction(async () => setFound(await signed(clip.id)));
  useEffect(() => void signing.run(), []);
  const url = found?.url ?? '';
  const isAddress = url.startsWith('http');
  return (
    <Dialog title={texts.downloadNamed(nameOf(clip))} onClose={onClose}>
      <ErrorNote failure={signing.failure} retry={() => void signing.run()} />
      {signing.busy && <Skeleton rows={2} />}
      {found && !isAddress && (
        <Note kind="warning">
          <p>{t().recordings.noAddress}</p>
          <p>{url}</p>
        </Note>
      )}
      {isAddress && (
        <>
          <p>{texts.downloadText}</p>
          <CopyField label={t().recordings.address} value={url} secret />
        </>
      )}
      <DialogActions>
        <Button onClick={onClose}>{t().ui.close}</Button>
        {isAddress && (
          <a class="button main" href={url} rel="noreferrer" download>
            {t().recordings.getFile}
          </a>
        )}
      </DialogActions>
    </Dialog>
  );
}

export function WatchDialog({ clip, reload, onClose }: ChangeProps) {
  const texts = t().clips;
  const change = async (wanted: boolean): Promise<void> => {
    await answer(api.PATCH('/api/clips/{id}', { params: { path: { id: clip.id } }, body: { public: wanted } }));
    toast(wanted ? texts.madePublic : texts.madePrivate);
    await reload();
  };
  return (
    <ShareDialog
      title={texts.watchNamed(nameOf(clip))}
      text={texts.watchText}
      url={clip.playbackUrl ?? ''}
      ownAddress={texts.ownAddress}
      isPublic={clip.public}
      publicText={texts.publicText}
      change={change}
      frame={texts.clip}
      file={texts.publicFile}
      onClose={onClose}
    />
  );
}

export function EditDialog({ clip, reload, onClose }: ChangeProps) {
  const texts = t().clips;
  const [title, setTitle] = useState(clip.title);
  const saving = useAction(async () => {
    await answer(api.PATCH('/api/clips/{id}', { params: { path: { id: clip.id } }, body: { title } }));
    await reload();
    onClose();
  });
  return (
    <FormDialog
      title={texts.editNamed(nameOf(clip))}
      action={t().ui.save}
      busy={saving.busy}
      failure={saving.failure}
      onSubmit={() => void saving.run()}
      onClose={onClose}
    >
      <TextField label={texts.title} name="title" optional maxLength={128} value={title} onInput={setTitle} />
    </FormDialog>
  );
}

export function DeleteDialog({ clip, reload, onClose }: ChangeProps) {
  const texts = t().clips;
  const name = nameOf(clip);
  const remove = async (): Promise<void> => {
    await answer(api.DELETE('/api/clips/{id}', { params: { path: { id: clip.id } } }));
    toast(texts.deleted(name));
    await reload();
  };
  return (
    <Confirm title={texts.deleteTitle(name)} action={texts.delete} work={remove} onClose={onClose}>
      <p>{texts.deleteText}</p>
    </Confirm>
  );
}
