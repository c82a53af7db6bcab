import { useState } from 'preact/hooks';
import { bytes, clock } from '../../format';
import { t } from '../../i18n';
import { Button, Empty, Frame, LinkButton, Loaded, Page, Pager, StateBadge, Table, Time, type Column } from '../../ui';
import { nameOf, useClips, type Clip } from './data';
import { DeleteDialog, DownloadDialog, EditDialog } from './dialogs';

type Action = 'download' | 'edit' | 'delete';

export default function View() {
  const texts = t().clips;
  const clips = useClips();
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
              columns={columnsOf((action, clip) => ask({ action, clip }))}
              rows={items}
              rowKey={({ id }) => id}
            />
          )
        }
      </Loaded>
      <Pager of={clips} />
      {asked?.action === 'download' && <DownloadDialog clip={asked.clip} onClose={close} />}
      {asked?.action === 'edit' && <EditDialog clip={asked.clip} reload={reload} onClose={close} />}
      {asked?.action === 'delete' && <DeleteDialog clip={asked.clip} reload={reload} onClose={close} />}
    </Page>
  );
}

function columnsOf(ask: (action: Action, clip: Clip) => void): Column<Clip>[] {
  const texts = t().clips;
  return [
    {
      title: texts.clip,
      cell: (clip) => (
        <span class="clip-name">
          {clip.posterUrl !== null && <Frame url={clip.posterUrl} />}
          <span class="recording-file">
            <strong>{nameOf(clip)}</strong>
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
      cell: ({ state, error }) => (
        <div class="cell">
          <StateBadge state={state} />
          {error !== null && <span class="small recording-error">{error}</span>}
        </div>
      ),
    },
    {
      title: texts.actions,
      quiet: true,
      cell: (clip) => (
        <span class="row-actions">
          {clip.playbackUrl !== null && (
            <a class="button quiet" href={clip.playbackUrl} target="_blank" rel="noreferrer" aria-label={texts.watchNamed(nameOf(clip))}>
              <span>{texts.watch}</span>
            </a>
          )}
          {(clip.state === 'ready' ? (['download', 'edit', 'delete'] as const) : (['edit', 'delete'] as const)).map((action) => (
            <Button key={action} kind="quiet" label={texts[`${action}Named`](nameOf(clip))} onClick={() => ask(action, clip)}>
              {texts[action]}
            </Button>
          ))}
        </span>
      ),
    },
  ];
}
