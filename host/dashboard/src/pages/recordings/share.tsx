import { useState } from 'preact/hooks';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { Badge, Button, CheckField, CopyField, Dialog, DialogActions, ErrorNote } from '../../ui';
import { embedOf, playerOf, publicOf } from './addresses';

/** What the owner sees of a recording or clip that viewers may watch. */
export function PublicBadge() {
  return (
    <Badge tone="good" icon="show">
      {t().recordings.public}
    </Badge>
  );
}

interface ShareProps {
  title: string;
  /** Explains the owner's address. */
  text: string;
  /** The owner's address of the media. */
  url: string;
  ownAddress: string;
  isPublic: boolean;
  publicText: string;
  /** Opens it to the public, or closes it. */
  change: (isPublic: boolean) => Promise<void>;
  /** Title of the frame in a website. */
  frame: string;
  /** Label of the address of the file, which viewers may download; for a clip. */
  file?: string;
  onClose: () => void;
}

/** The owner's player, the switch for the public, and what to give to viewers. */
export function ShareDialog({ title, text, url, ownAddress, isPublic: initial, publicText, change, frame, file, onClose }: ShareProps) {
  const texts = t().recordings;
  const [isPublic, setPublic] = useState(initial);
  const changing = useAction(async () => {
    setPublic(!isPublic);
    try {
      await change(!isPublic);
    } catch (error) {
      setPublic(isPublic);
      throw error;
    }
  });
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{text}</p>
      <CopyField label={ownAddress} value={url} secret />
      <CheckField label={texts.public} help={publicText} checked={isPublic} onChange={() => void changing.run()} />
      <ErrorNote failure={changing.failure} />
      {isPublic && (
        <>
          <CopyField label={texts.publicPlayer} value={publicOf(playerOf(url))} />
          {file !== undefined && <CopyField label={file} value={publicOf(url)} />}
          <CopyField label={texts.embedCode} value={embedOf(url, frame)} help={texts.embedHelp} long />
        </>
      )}
      <DialogActions>
        <Button onClick={onClose}>{t().ui.close}</Button>
        <a class="button main" href={playerOf(url)} target="_blank" rel="noreferrer">
          {texts.openPlayer}
        </a>
      </DialogActions>
    </Dialog>
  );
}
