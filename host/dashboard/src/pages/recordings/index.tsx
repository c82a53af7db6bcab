import { useState } from 'preact/hooks';
import { bytes, clock } from '../../format';
import { t } from '../../i18n';
import { Button, Empty, Frame, LinkButton, Loaded, Page, Pager, StateBadge, Table, Time, type Column } from '../../ui';
import { ClipDialog } from './clip';
import { shortName, signed, useRecordings, type Recording } from './data';
import { DeleteDialog, RecoverDialog } from './dialogs';
import { DownloadDialog } from './download';
import { PublicBadge } from './share';
import { WatchDialog } from './watch';

type Action = 'watch' | 'clip' | 'download' | 'recover' | 'delete';

export default function View() {
  const texts = t().recordings;
  const recordings = useRecordings();
  const [asked, ask] = useState<{ action: Action; recording: Recording } | null>(null);
  const { reload } = recordings;
  const close = (): void => ask(null);
  return (
    <Page title={t().nav.recordings}>
      <Loaded of={{ ...recordings, data: recordings.items }} rows={5}>
        {(items) =>
          items.length === 0 ? (
            <Empty title={texts.none}>
              <p class="muted">{texts.noneAdvice}</p>
              <LinkButton href="/">{t().nav.streams}</LinkButton>
            </Empty>
          ) : (
            <Table
              caption={t().nav.recordings}
              columns={columnsOf((action, recording) => ask({ action, recording }))}
              rows={items}
              rowKey={({ id }) => id}
            />
          )
        }
      </Loaded>
      <Pager of={recordings} />
      {asked?.action === 'watch' && <WatchDialog recording={asked.recording} reload={reload} onClose={close} />}
      {asked?.action === 'clip' && asked.recording.streamKeyId !== null && (
        <ClipDialog recording={asked.recording} streamKeyId={asked.recording.streamKeyId} onClose={close} />
      )}
      {asked?.action === 'download' && (
        <DownloadDialog
          title={texts.downloadTitle(shortName(asked.recording.fileName))}
          text={texts.downloadText}
          signed={() => signed(asked.recording.id)}
          onClose={close}
        />
      )}
      {asked?.action === 'recover' && <RecoverDialog recording={asked.recording} reload={reload} onClose={close} />}
      {asked?.action === 'delete' && <DeleteDialog recording={asked.recording} reload={reload} onClose={close} />}
    </Page>
  );
}

/** The actions that a state allows. A deleted stream has no clips. */
function actionsOf({ state, playbackUrl, streamKeyId }: Recording): Action[] {
  const actions = storedActions(state);
  return playbackUrl === null ? actions : streamKeyId === null ? ['watch', ...actions] : ['watch', 'clip', ...actions];
}

function storedActions(state: Recording['state']): Action[] {
  switch (state) {
    case 'recording':
      return [];
    case 'uploading':
      return ['delete'];
    case 'ready':
      return ['download', 'delete'];
    case 'failed':
      return ['recover', 'delete'];
  }
}

function columnsOf(ask: (action: Action, recording: Recording) => void): Column<Recording>[] {
  const texts = t().recordings;
  return [
    {
      title: texts.file,
      cell: ({ fileName, startedAt, durationSeconds, posterUrl }) => (
        <span class="with-poster">
          {/* A frame that is asked for before there is one is not asked for again. */}
          {posterUrl !== null && durationSeconds > 0 && <Frame url={posterUrl} />}
          <span class="recording-file">
            <strong>{fileName}</strong>
            <span class="small muted">
              {texts.started} <Time at={startedAt} />
            </span>
          </span>
        </span>
      ),
    },
    { title: texts.duration, numeric: true, cell: ({ durationSeconds }) => clock(durationSeconds * 1_000) },
    { title: texts.size, numeric: true, cell: ({ sizeBytes }) => bytes(sizeBytes) },
    { title: texts.state, cell: (recording) => <State recording={recording} /> },
    {
      title: texts.actions,
      quiet: true,
      cell: (recording) => (
        <span class="row-actions">
          {actionsOf(recording).map((action) => (
            <Button key={action} kind="quiet" label={texts[`${action}Named`](recording.fileName)} onClick={() => ask(action, recording)}>
              {texts[action]}
            </Button>
          ))}
        </span>
      ),
    },
  ];
}

/** State with progress, why an upload waits or failed, and when the recording is deleted. */
function State({ recording }: { recording: Recording }) {
  const texts = t().recordings;
  const { state, fileName, sizeBytes, uploadedBytes, error, expiresAt } = recording;
  const isGoing = state === 'recording' || state === 'uploading';
  return (
    <div class="cell">
      <StateBadge state={state} />
      {recording.public && <PublicBadge />}
      {isGoing && (
        <>
          <progress class="progress" max={Math.max(sizeBytes, 1)} value={uploadedBytes} aria-label={texts.progress(fileName)} />
          <span class="small muted">{texts.uploaded(bytes(uploadedBytes), bytes(sizeBytes))}</span>
        </>
      )}
      {error !== null && <span class="small recording-error">{error}</span>}
      {expiresAt !== null && (
        <span class="small muted">
          {texts.expires} <Time at={expiresAt} />
        </span>
      )}
    </div>
  );
}
