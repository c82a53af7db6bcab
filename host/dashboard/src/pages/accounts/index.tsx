import { useState } from 'preact/hooks';
import { sats } from '../../format';
import { t } from '../../i18n';
import { account } from '../../session';
import { Badge, Button, Empty, Loaded, Page, Pager, StateBadge, Table, Time, type Column } from '../../ui';
import { useAccounts, type Account } from './data';
import { CreateDialog, CreditDialog, DisableDialog, EnableButton, LinkDialog, ShownLink, type Link } from './dialogs';

type Question = { kind: 'credit' | 'link' | 'disable'; account: Account };

export default function View() {
  const texts = t().accounts;
  return account.value?.operator === false ? (
    <Page title={t().nav.accounts}>
      <Empty title={texts.forOperators} />
    </Page>
  ) : (
    <Accounts />
  );
}

function Accounts() {
  const texts = t().accounts;
  const accounts = useAccounts();
  const [isAdding, add] = useState(false);
  const [question, setQuestion] = useState<Question | null>(null);
  const [link, showLink] = useState<Link | null>(null);
  const { reload } = accounts;
  const close = (): void => setQuestion(null);
  const takeLink = async (made: Link): Promise<void> => {
    add(false);
    close();
    showLink(made);
    await reload();
  };
  return (
    <Page
      title={t().nav.accounts}
      actions={
        <Button kind="main" icon="add" onClick={() => add(true)}>
          {texts.add}
        </Button>
      }
    >
      <Loaded of={{ ...accounts, data: accounts.items }} rows={5}>
        {(items) =>
          items.length === 0 ? (
            <Empty title={texts.none} />
          ) : (
            <Table caption={t().nav.accounts} columns={columnsOf(setQuestion, reload)} rows={items} rowKey={({ id }) => id} />
          )
        }
      </Loaded>
      <Pager of={accounts} />
      {isAdding && <CreateDialog onCreated={takeLink} onClose={() => add(false)} />}
      {question?.kind === 'credit' && <CreditDialog account={question.account} reload={reload} onClose={close} />}
      {question?.kind === 'link' && <LinkDialog account={question.account} onMade={takeLink} onClose={close} />}
      {question?.kind === 'disable' && <DisableDialog account={question.account} reload={reload} onClose={close} />}
      {link && <ShownLink link={link} onClose={() => showLink(null)} />}
    </Page>
  );
}

function columnsOf(ask: (question: Question) => void, reload: () => Promise<void>): Column<Account>[] {
  const texts = t().accounts;
  const button = (kind: Question['kind'], label: string, text: string, account: Account) => (
    <Button kind="quiet" label={label} onClick={() => ask({ kind, account })}>
      {text}
    </Button>
  );
  const isOwn = ({ name }: Account): boolean => name === account.value?.name;
  return [
    {
      title: texts.name,
      cell: (each) => (
        <span class="row">
          <strong>{each.name}</strong>
          {isOwn(each) && <span class="muted">{texts.you}</span>}
          {each.operator && (
            <Badge tone="off" icon="settings">
              {texts.operator}
            </Badge>
          )}
        </span>
      ),
    },
    {
      title: texts.state,
      cell: ({ disabled, hasPassword }) => (
        <span class="row">
          <StateBadge state={disabled ? 'disabled' : 'active'} />
          {!hasPassword && <span class="small muted">{texts.noPassword}</span>}
        </span>
      ),
    },
    { title: texts.balance, numeric: true, cell: ({ balance }) => sats(balance) },
    { title: texts.created, cell: ({ createdAt }) => <Time at={createdAt} /> },
    {
      title: texts.actions,
      quiet: true,
      cell: (each) => (
        <span class="row-actions">
          {button('credit', texts.addCreditNamed(each.name), texts.addCredit, each)}
          {button('link', texts.linkNamed(each.name), texts.link, each)}
          {each.disabled ? (
            <EnableButton account={each} reload={reload} />
          ) : (
            // The service refuses it for the own account.
            !isOwn(each) && button('disable', texts.disableNamed(each.name), texts.disable, each)
          )}
        </span>
      ),
    },
  ];
}
