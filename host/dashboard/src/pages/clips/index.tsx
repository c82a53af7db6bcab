import { useState } from 'preact/hooks';
import { bytes, clock } from '../../format';
import { t } from '../../i18n';
import { useStreams, type Stream } from '../../store';
import { Button, Empty, Frame, LinkButton, Loaded, Page, Pager, StateBadge, Table, Time, type Column } from '../../ui';
import { DownloadDialog } from '../recordings/download';
import { PublicBadge } from '../recordings/share';
import { nameOf, signed, useClips, type Clip } from './data';
import { DeleteDialog, EditDialog, WatchDialog } from './dialogs';

type Action = 'watch' | 'download' | 'edit' | 'delete';

export default function View() {
  const texts = t().clips;
  const clips = useClips();
  const streams = useStreams().data?.items ?? [];
  const [asked, ask] = useState<{ action: Action; clip: Clip } | null>(null);
  const { reload } = clips;
  const close = (): void => ask(null);
  return (
    <Page title={t().nav.clips}>
      <Loaded of={{ ...clips, data: clips.items }} rows={5}>
        {(items) =>
          items.length === 0 ? (
            <Empty title={texts.none}>
              <p class="muted">{texts.noneAdvice}</p>
              <LinkButton href="/">{t().nav.streams}</LinkButton>
            </Empty>
          ) : (
            <Table
              caption={t().nav.clips}
              columns={columnsOf(streams, (action, clip) => ask({ action, clip }))}
              rows={items}
              rowKey={({ id }) => id}
            />
          )
        }
      </Loaded>
      <Pager of={clips} />
      {asked?.action === 'watch' && <WatchDialog clip={asked.clip} reload={reload} onClose={close} />}
      {asked?.action === 'download' && (
        <DownloadDialog
          title={texts.downloadNamed(nameOf(asked.clip))}
          text={texts.downloadText}
          signed={() => signed(asked.clip.id)}
          onClose={close}
        />
      )}
      {asked?.action === 'edit' && <EditDialog clip={asked.clip} reload={reload} onClose={close} />}
      {asked?.action === 'delete' && <DeleteDialog clip={asked.clip} reload={reload} onClose={close} />}
    </Page>
  );
}

/** The actions that a state allows. */
function actionsOf({ state, playbackUrl }: Clip): Action[] {
  const actions: Action[] = state === 'ready' ? ['download', 'edit', 'delete'] : ['edit', 'delete'];
  return playbackUrl === null ? actions : ['watch', ...actions];
}

function columnsOf(streams: readonly Stream[], ask: (action: Action, clip: Clip) => void): Column<Clip>[] {
  const texts = t().clips;
  return [
    {
      title: texts.clip,
      cell: (clip) => (
        <span class="with-poster">
          {clip.posterUrl !== null && <Frame url={clip.posterUrl} />}
          <span class="recording-file">
            <strong>{nameOf(clip)}</strong>
            <span class="small muted">{streams.find(({ id }) => id === clip.streamKeyId)?.label}</span>
            <span class="small muted">
              <Time at={clip.startedAt ?? clip.createdAt} />
            </span>
          </span>
        </span>
      ),
    },
    {
      title: texts.duration,
      numeric: true,
      cell: ({ durationSeconds }) => (durationSeconds === null ? '–' : clock(durationSeconds * 1_000)),
    },
    { title: texts.size, numeric: true, cell: ({ sizeBytes }) => (sizeBytes === null ? '–' : bytes(sizeBytes)) },
    {
      title: texts.state,
      cell: (clip) => (
        <div class="cell">
          <StateBadge state={clip.state} />
          {clip.public && <PublicBadge />}
          {clip.error !== null && <span class="small recording-error">{clip.error}</span>}
        </div>
      ),
    },
    {
      title: texts.actions,
      quiet: true,
      cell: (clip) => (
        <span class="row-actions">
          {actionsOf(clip).map((action) => (
            <Button key={action} kind="quiet" label={texts[`${action}Named`](nameOf(clip))} onClick={() => ask(action, clip)}>
              {texts[action]}
            </Button>
          ))}
        </span>
      ),
    },
  ];
}
