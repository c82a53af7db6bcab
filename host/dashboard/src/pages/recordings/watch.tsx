import { useState } from 'preact/hooks';
import { answer, api } from '../../api';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { Button, CheckField, CopyField, Dialog, DialogActions, ErrorNote, toast } from '../../ui';
import type { Recording } from './data';

interface Props {
  recording: Recording;
  reload: () => Promise<void>;
  onClose: () => void;
}

/** The player page of a playlist's address, with its token. */
function pageOf(url: string): string {
  return url.replace('/vod/', '/watch/vod/').replace('/index.m3u8', '');
}

/** The owner's player, the switch for the public, and what to put into a website. */
export function WatchDialog({ recording, reload, onClose }: Props) {
  const texts = t().recordings;
  const { id, fileName, playbackUrl } = recording;
  const [isPublic, setPublic] = useState(recording.public);
  const changing = useAction(async () => {
    const wanted = !isPublic;
    await answer(api.PATCH('/api/archives/{id}', { params: { path: { id } }, body: { public: wanted } }));
    setPublic(wanted);
    toast(wanted ? texts.madePublic : texts.madePrivate);
    await reload();
  });
  const url = playbackUrl ?? '';
  const [page = ''] = pageOf(url).split('?');
  const embed = `<iframe src="${page}?apiKey=pk_..." width="960" height="540" allow="autoplay; fullscreen" title="${texts.recording}" style="border: 0"></iframe>`;
  return (
    <Dialog title={texts.watchTitle(fileName.slice(fileName.lastIndexOf('/') + 1))} onClose={onClose}>
      <p>{texts.watchText}</p>
      <CopyField label={texts.ownAddress} value={url} secret />
      <CheckField label={texts.public} help={texts.publicText} checked={isPublic} onChange={() => void changing.run()} />
      <ErrorNote failure={changing.failure} />
      {isPublic && <CopyField label={texts.embedCode} value={embed} help={texts.embedHelp} long />}
      <DialogActions>
        <Button onClick={onClose}>{t().ui.close}</Button>
        <a class="button main" href={pageOf(url)} target="_blank" rel="noreferrer">
          {texts.openPlayer}
        </a>
      </DialogActions>
    </Dialog>
  );
}
