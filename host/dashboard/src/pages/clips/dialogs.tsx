import { useState } from 'preact/hooks';
import { answer, api } from '../../api';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { Confirm, FormDialog, TextField, toast } from '../../ui';
import { ShareDialog } from '../recordings/share';
import { nameOf, useClip, type Clip } from './data';

interface Props {
  clip: Clip;
  reload: () => Promise<void>;
  onClose: () => void;
}

export function WatchDialog({ clip: listed, reload, onClose }: Props) {
  const texts = t().clips;
  const clip = useClip(listed);
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
      streamKeyId={clip.streamKeyId}
      isPublic={clip.public}
      publicText={texts.publicText}
      change={change}
      frame={texts.clip}
      file={texts.publicFile}
      onClose={onClose}
    />
  );
}

export function EditDialog({ clip, reload, onClose }: Props) {
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

export function DeleteDialog({ clip, reload, onClose }: Props) {
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
