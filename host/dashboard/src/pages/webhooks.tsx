import { useState } from 'preact/hooks';
import { t } from '../i18n';
import { navigate } from '../router';
import { useStreams } from '../store';
import { Button, Empty, Loaded, Page, StateBadge, Table, type Column } from '../ui';
import { CreateDialog, type Created } from './webhook/create';
import { useWebhooks, type Webhook } from './webhook/data';
import { DisabledNote, LastResult, SecretDialog } from './webhook/parts';
import { Verify } from './webhook/verify';

export default function View() {
  const texts = t().webhooks;
  const webhooks = useWebhooks();
  const [isAdding, add] = useState(false);
  const [created, setCreated] = useState<Created | null>(null);
  const button = (
    <Button kind="main" icon="add" onClick={() => add(true)}>
      {texts.add}
    </Button>
  );
  const open = ({ id }: Created): void => navigate(`/webhooks/${id}`);
  const take = (made: Created): void => {
    add(false);
    void webhooks.reload();
    if (made.secret === null) {
      open(made);
    } else {
      setCreated(made);
    }
  };
  const isEmpty = webhooks.data?.items.length === 0;
  return (
    <Page title={t().nav.webhooks} actions={!isEmpty && button}>
      <Loaded of={webhooks}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title={texts.none}>
              <p class="muted">{texts.about}</p>
              {button}
            </Empty>
          ) : (
            <List webhooks={items} reload={webhooks.reload} />
          )
        }
      </Loaded>
      <Verify />
      {isAdding && <CreateDialog onCreated={take} onClose={() => add(false)} />}
      {created?.secret && <SecretDialog secret={created.secret} onClose={() => open(created)} />}
    </Page>
  );
}

function List({ webhooks, reload }: { webhooks: readonly Webhook[]; reload: () => Promise<void> }) {
  const texts = t().webhooks;
  const streams = useStreams();
  const label = (id: number): string => streams.data?.items.find((stream) => stream.id === id)?.label ?? texts.oneStream(id);
  const columns: Column<Webhook>[] = [
    {
      title: texts.url,
      cell: ({ id, url }) => (
        <a class="webhook-url" href={`/webhooks/${id}`}>
          {url}
        </a>
      ),
    },
    { title: texts.events, cell: ({ events }) => <span class="small">{events.map((event) => texts.eventNames[event]).join(', ')}</span> },
    { title: texts.scope, cell: ({ stream_key_id: id }) => (id === null ? texts.allStreams : label(id)) },
    { title: texts.last, cell: (webhook) => <LastResult webhook={webhook} /> },
    { title: texts.state, cell: ({ enabled }) => <StateBadge state={enabled ? 'active' : 'disabled'} /> },
  ];
  const disabled = webhooks.filter(({ enabled }) => !enabled);
  return (
    <>
      {disabled.map((webhook) => (
        <div key={webhook.id} class="webhook-disabled">
          <p class="webhook-url">{webhook.url}</p>
          <DisabledNote webhook={webhook} reload={reload} />
        </div>
      ))}
      <Table caption={t().nav.webhooks} columns={columns} rows={webhooks} rowKey={({ id }) => id} />
    </>
  );
}
