import { useState } from 'preact/hooks';
import { answer, api, once, type Schema } from '../../api';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { navigate } from '../../router';
import type { PageProps } from '../../routes';
import { useStreams } from '../../store';
import { Button, Card, Confirm, CopyField, Empty, ErrorNote, Figures, LinkButton, Loaded, Page, StateBadge, Time, toast } from '../../ui';
import { latency, useDeliveries, useWebhooks, type Webhook } from './data';
import { Answer } from './delivery';
import { withKey } from './key';
import { chosenState, Log } from './log';
import { DisabledNote, LastResult, Result, SecretDialog } from './parts';

export default function View({ params }: PageProps) {
  const texts = t().webhook;
  const id = Number(params['id']);
  const webhooks = useWebhooks();
  const webhook = webhooks.data?.items.find((each) => each.id === id);
  return (
    <Page
      title={webhook ? nameOf(webhook.url) : texts.title}
      above={{ href: '/webhooks', text: t().nav.webhooks }}
      beside={webhook && <StateBadge state={webhook.enabled ? 'active' : 'disabled'} />}
      actions={webhook && <Actions webhook={webhook} reload={webhooks.reload} />}
    >
      <Loaded of={webhooks} rows={6}>
        {() => (webhook ? <Opened webhook={webhook} reload={webhooks.reload} /> : <Unknown />)}
      </Loaded>
    </Page>
  );
}

/** Host and path. */
function nameOf(url: string): string {
  if (!URL.canParse(url)) {
    return url;
  }
  const { host, pathname } = new URL(url);
  return host + pathname.replace(/\/$/, '');
}

function Unknown() {
  return (
    <Empty title={t().webhook.unknown}>
      <LinkButton href="/webhooks">{t().nav.webhooks}</LinkButton>
    </Empty>
  );
}

interface Props {
  webhook: Webhook;
  reload: () => Promise<void>;
}

type Question = 'rotate' | 'delete';

function Actions({ webhook, reload }: Props) {
  const texts = t().webhook;
  const { id, url, hasSecret } = webhook;
  const [question, ask] = useState<Question | null>(null);
  const [rotated, setRotated] = useState<Schema<'SecretRotated'> | null>(null);
  const rotate = async (key: string): Promise<void> => {
    const params = { path: { id }, ...once(key) };
    setRotated(await withKey((headers) => answer(api.POST('/api/webhooks/{id}/rotate-secret', { headers, params }))));
    await reload();
  };
  const remove = async (): Promise<void> => {
    await withKey((headers) => answer(api.DELETE('/api/webhooks/{id}', { headers, params: { path: { id } } })));
    toast(texts.deleted);
    navigate('/webhooks');
  };
  const close = (): void => ask(null);
  return (
    <>
      <Button onClick={() => ask('rotate')}>{hasSecret ? texts.rotate : texts.addSecret}</Button>
      <Button kind="danger" onClick={() => ask('delete')}>
        {texts.delete}
      </Button>
      {question === 'rotate' && (
        <Confirm title={hasSecret ? texts.rotateTitle : texts.addSecretTitle} action={texts.rotate} danger={false} work={rotate} onClose={close}>
          <p class="webhook-url">{url}</p>
          <p>{hasSecret ? texts.rotateText : texts.addSecretText}</p>
        </Confirm>
      )}
      {question === 'delete' && (
        <Confirm title={texts.deleteTitle(nameOf(url))} action={texts.delete} work={remove} onClose={close}>
          <p class="webhook-url">{url}</p>
          <p>{texts.deleteText}</p>
        </Confirm>
      )}
      {rotated && <SecretDialog secret={rotated.secret} oldUntil={rotated.oldSecretUntil} onClose={() => setRotated(null)} />}
    </>
  );
}

function Opened({ webhook, reload }: Props) {
  const deliveries = useDeliveries(webhook.id, chosenState());
  const reloadAll = async (): Promise<void> => {
    await Promise.all([reload(), deliveries.reload()]);
  };
  return (
    <div class="stack wide">
      {!webhook.enabled && <DisabledNote webhook={webhook} reload={reload} />}
      <Facts webhook={webhook} />
      <Test webhook={webhook} reload={reloadAll} />
      <Log webhook={webhook} deliveries={deliveries} />
    </div>
  );
}

function Facts({ webhook }: { webhook: Webhook }) {
  const texts = t().webhooks;
  const { url, events, stream_key_id: id, hasSecret, createdAt } = webhook;
  const streams = useStreams();
  const label = (id: number): string => streams.data?.items.find((stream) => stream.id === id)?.label ?? texts.oneStream(id);
  return (
    <Card title={t().webhook.settings}>
      <CopyField label={texts.url} value={url} />
      <div class="compact">
        <Figures
          items={[
            [texts.events, events.map((event) => texts.eventNames[event]).join(', ')],
            [texts.scope, id === null ? texts.allStreams : <a href={`/streams/${id}`}>{label(id)}</a>],
            [texts.signed, hasSecret ? texts.signedYes : texts.signedNo],
            [texts.last, <LastResult webhook={webhook} />],
            [t().webhook.created, <Time at={createdAt} />],
          ]}
        />
      </div>
    </Card>
  );
}

/** Sends `test.ping` and shows the answer of the receiver. */
function Test({ webhook: { id }, reload }: Props) {
  const texts = t().webhook;
  const [tested, setTested] = useState<Schema<'WebhookTested'> | null>(null);
  const testing = useAction(async (key) => {
    setTested(null);
    const params = { path: { id }, ...once(key) };
    setTested(await withKey((headers) => answer(api.POST('/api/webhooks/{id}/test', { headers, params }))));
    await reload();
  });
  return (
    <Card
      title={texts.test}
      actions={
        <Button icon="webhooks" busy={testing.busy} onClick={() => void testing.run()}>
          {texts.send}
        </Button>
      }
    >
      <p class="muted">{texts.testText}</p>
      <ErrorNote failure={testing.failure} />
      <div role="status" class="stack webhook-result">
        {testing.busy && <p class="muted">{texts.waiting}</p>}
        {tested && (
          <>
            <div class="row">
              <Result {...tested} />
              <strong>{tested.ok ? texts.accepted : texts.notAccepted}</strong>
              <span class="muted">{texts.after(latency(tested.latencyMs))}</span>
            </div>
            <Answer {...tested} />
          </>
        )}
      </div>
    </Card>
  );
}
