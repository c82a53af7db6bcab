import { useState } from 'preact/hooks';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { useKeys, useStream } from '../../store';
import { Badge, Button, CheckField, CopyField, Dialog, DialogActions, ErrorNote, LinkButton, Loaded, Note, SelectField } from '../../ui';
import { NewPublicKey } from '../keys/public';
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
  /** The stream, whose public keys open it; `null` if it was deleted. */
  streamKeyId: number | null;
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
export function ShareDialog({ title, text, url, ownAddress, streamKeyId, isPublic: initial, publicText, change, ...rest }: ShareProps) {
  const texts = t().recordings;
  const { frame, file, onClose } = rest;
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
      {isPublic &&
        (streamKeyId === null ? (
          <Note kind="warning">{texts.noStream}</Note>
        ) : (
          <ForViewers url={url} streamKeyId={streamKeyId} frame={frame} file={file} />
        ))}
      <DialogActions>
        <Button onClick={onClose}>{t().ui.close}</Button>
        <a class="button main" href={playerOf(url)} target="_blank" rel="noreferrer">
          {texts.openPlayer}
        </a>
      </DialogActions>
    </Dialog>
  );
}

interface ViewersProps {
  url: string;
  streamKeyId: number;
  frame: string;
  file: string | undefined;
}

/** The addresses with a public key of one of the stream's destinations, which the owner chooses if there are several. */
function ForViewers({ url, streamKeyId, frame, file }: ViewersProps) {
  const texts = t().recordings;
  const stream = useStream(streamKeyId);
  const keys = useKeys();
  const [chosen, choose] = useState<number | null>(null);
  return (
    <Loaded of={stream} rows={2}>
      {({ playback: [first, ...others] }) =>
        first === undefined ? (
          <Note kind="warning">
            <p>{texts.noHosted}</p>
            <LinkButton href={`/streams/${streamKeyId}`}>{texts.openStream}</LinkButton>
          </Note>
        ) : (
          <Loaded of={keys} rows={2}>
            {({ items }) => {
              const ids = [first, ...others].map(({ destinationId }) => destinationId);
              const usable = items.filter(({ key, destinationId }) => key !== null && ids.includes(destinationId ?? 0));
              const used = usable.find(({ id }) => id === chosen) ?? usable[0];
              const nameOf = ({ label, masked, destinationId }: (typeof usable)[number]): string =>
                `${label || masked} · ${t().keys.numbered(destinationId ?? 0)}`;
              return used?.key ? (
                <div class="stack">
                  {usable.length > 1 && (
                    <SelectField
                      label={texts.publicKey}
                      help={texts.publicKeyHelp}
                      value={String(used.id)}
                      options={usable.map((key) => [String(key.id), nameOf(key)] as const)}
                      onChange={(id) => choose(Number(id))}
                    />
                  )}
                  <CopyField label={texts.publicPlayer} value={publicOf(playerOf(url), used.key)} />
                  {file !== undefined && <CopyField label={file} value={publicOf(url, used.key)} />}
                  <CopyField label={texts.embedCode} value={embedOf(url, used.key, frame)} long />
                </div>
              ) : (
                <NewPublicKey destinationId={first.destinationId} />
              );
            }}
          </Loaded>
        )
      }
    </Loaded>
  );
}
