import { useState } from 'preact/hooks';
import { answer, api, once, type Schema } from '../../api';
import { t } from '../../i18n';
import { useKeys } from '../../store';
import { Badge, Button, Confirm, Empty, Loaded, Note, Page, Table, Time, toast, type Column } from '../../ui';
import { isOwn } from '../webhook/key';
import { CreateDialog, type Created } from './create';
import { CreatedDialog, UseDialog } from './use';

export type ApiKey = Schema<'ApiKey'>;

/** Rows that are shown at first, and added by the button. */
const ROWS = 50;

export default function View() {
  const texts = t().keys;
  const keys = useKeys();
  const [isAdding, add] = useState(false);
  const [created, setCreated] = useState<Created | null>(null);
  const button = (
    <Button kind="main" icon="add" onClick={() => add(true)}>
      {texts.add}
    </Button>
  );
  const take = async (made: Created): Promise<void> => {
    add(false);
    setCreated(made);
    await keys.reload();
  };
  const shown = keys.data?.items.filter((key) => !isOwn(key));
  return (
    <Page title={t().nav.keys} actions={shown?.length !== 0 && button}>
      <Note>
        <p>{texts.about.public}</p>
        <p>{texts.about.permanent}</p>
      </Note>
      <Loaded of={keys}>
        {({ items }) => {
          const own = items.filter(isOwn);
          const others = items.filter((key) => !isOwn(key));
          return (
            <>
              {others.length === 0 ? <Empty title={texts.none}>{button}</Empty> : <List keys={others} onReplaced={take} reload={keys.reload} />}
              {own.length > 0 && <Own keys={own} reload={keys.reload} />}
            </>
          );
        }}
      </Loaded>
      {isAdding && <CreateDialog onCreated={take} onClose={() => add(false)} />}
      {created && <CreatedDialog created={created} onClose={() => setCreated(null)} />}
    </Page>
  );
}

type Question = { kind: 'use' | 'rotate' | 'revoke'; key: ApiKey };

interface ListProps {
  keys: readonly ApiKey[];
  onReplaced: (created: Created) => Promise<void>;
  reload: () => Promise<void>;
}

function nameOf({ label }: ApiKey): string {
  return label === '' ? t().keys.unnamed : label;
}

async function revoke({ id }: ApiKey): Promise<void> {
  await answer(api.DELETE('/api/keys/{id}', { params: { path: { id } } }));
}

function List({ keys, onReplaced, reload }: ListProps) {
  const [limit, setLimit] = useState(ROWS);
  const [question, setQuestion] = useState<Question | null>(null);
  const columns = useColumns(setQuestion);
  return (
    <>
      <Table caption={t().nav.keys} columns={columns} rows={keys.slice(0, limit)} rowKey={({ id }) => id} />
      {keys.length > limit && (
        <div class="pager">
          <Button onClick={() => setLimit(limit + ROWS)}>{t().ui.more}</Button>
        </div>
      )}
      {question && <Asked question={question} onReplaced={onReplaced} reload={reload} onClose={() => setQuestion(null)} />}
    </>
  );
}

interface AskedProps extends Omit<ListProps, 'keys'> {
  question: Question;
  onClose: () => void;
}

function Asked({ question: { kind, key }, onReplaced, reload, onClose }: AskedProps) {
  const texts = t().keys;
  const name = nameOf(key);
  if (kind === 'use') {
    return <UseDialog apiKey={key} name={name} onClose={onClose} />;
  }
  if (kind === 'rotate') {
    const rotate = async (attempt: string): Promise<void> => {
      const made = await answer(api.POST('/api/keys/{id}/rotate', { params: { path: { id: key.id }, ...once(attempt) } }));
      await onReplaced({ type: key.type, scopes: key.scopes, key: made.key });
    };
    return (
      <Confirm title={texts.rotateTitle(name)} action={texts.rotate} work={rotate} onClose={onClose}>
        <p>{texts.rotateText}</p>
      </Confirm>
    );
  }
  const remove = async (): Promise<void> => {
    await revoke(key);
    toast(texts.revoked(name));
    await reload();
  };
  return (
    <Confirm title={texts.revokeTitle(name)} action={texts.revoke} work={remove} onClose={onClose}>
      <p>
        <code>{key.masked}</code>
      </p>
      <p>{texts.revokeText}</p>
    </Confirm>
  );
}

function useColumns(ask: (question: Question) => void): Column<ApiKey>[] {
  const texts = t().keys;
  const rights = ({ type, destinationId, scopes }: ApiKey): string =>
    type === 'public' ? texts.numbered(destinationId ?? 0) : scopes.map((scope) => texts.scopeNames[scope]).join(', ');
  return [
    {
      title: texts.label,
      cell: (key) => (
        <span class="key-name">
          <span class="row">
            <strong>{nameOf(key)}</strong>
            <Kind type={key.type} />
          </span>
          <code class="small muted">{key.masked}</code>
        </span>
      ),
    },
    {
      title: texts.rights,
      cell: (key) => (
        <span>
          {rights(key)}
          {key.endsWithSession && <span class="small muted"> · {texts.endsWithLogin}</span>}
        </span>
      ),
    },
    { title: texts.lastUsed, cell: ({ lastUsedAt }) => (lastUsedAt === null ? <span class="muted">{texts.never}</span> : <Time at={lastUsedAt} />) },
    { title: texts.created, cell: ({ createdAt }) => <Time at={createdAt} /> },
    {
      title: texts.actions,
      quiet: true,
      cell: (key) => (
        <span class="row-actions">
          {(['use', 'rotate', 'revoke'] as const).map((kind) => (
            <Button key={kind} kind="quiet" label={texts[`${kind}Named`](nameOf(key))} onClick={() => ask({ kind, key })}>
              {texts[kind]}
            </Button>
          ))}
        </span>
      ),
    },
  ];
}

function Kind({ type }: { type: ApiKey['type'] }) {
  return (
    <Badge tone="off" icon={type === 'public' ? 'show' : 'hide'}>
      {t().keys.kinds[type]}
    </Badge>
  );
}

/** The keys of the pages themselves, folded: nothing is hidden, and nothing is in the way. */
function Own({ keys, reload }: { keys: readonly ApiKey[]; reload: () => Promise<void> }) {
  const texts = t().keys;
  const [asked, ask] = useState<ApiKey | null>(null);
  const columns: Column<ApiKey>[] = [
    { title: texts.key, cell: ({ masked }) => <code>{masked}</code> },
    { title: texts.created, cell: ({ createdAt }) => <Time at={createdAt} /> },
    { title: texts.lastUsed, cell: ({ lastUsedAt }) => (lastUsedAt === null ? texts.never : <Time at={lastUsedAt} />) },
    {
      title: texts.actions,
      quiet: true,
      cell: (key) => (
        <span class="row-actions">
          <Button kind="quiet" label={texts.revokeNamed(key.masked)} onClick={() => ask(key)}>
            {texts.revoke}
          </Button>
        </span>
      ),
    },
  ];
  return (
    <details class="key-own">
      <summary>{texts.own(keys.length)}</summary>
      <div class="stack">
        <p class="muted">{texts.ownText}</p>
        <Table caption={texts.own(keys.length)} columns={columns} rows={keys} rowKey={({ id }) => id} />
      </div>
      {asked && <Asked question={{ kind: 'revoke', key: asked }} onReplaced={reload} reload={reload} onClose={() => ask(null)} />}
    </details>
  );
}
