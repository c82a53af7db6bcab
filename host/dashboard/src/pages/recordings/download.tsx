import { useEffect, useState } from 'preact/hooks';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { Button, CopyField, Dialog, DialogActions, ErrorNote, Note, Skeleton } from '../../ui';

interface Props {
  title: string;
  /** Says what the address is good for. */
  text: string;
  /** Reads the recording or clip with an address that anyone can download from. */
  signed: () => Promise<{ url: string | null }>;
  onClose: () => void;
}

/** Asks the service for an address, and shows it. */
export function DownloadDialog({ title, text, signed, onClose }: Props) {
  const texts = t().recordings;
  const [found, setFound] = useState<{ url: string | null } | null>(null);
  const signing = useAction(async () => setFound(await signed()));
  useEffect(() => void signing.run(), []);
  const url = found?.url ?? '';
  const isAddress = url.startsWith('http');
  return (
    <Dialog title={title} onClose={onClose}>
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
          <p>{text}</p>
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
