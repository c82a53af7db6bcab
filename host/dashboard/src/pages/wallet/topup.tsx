import { useEffect, useRef, useState } from 'preact/hooks';
import { answer, api, once, type Schema } from '../../api';
import { clock, sats } from '../../format';
import { t } from '../../i18n';
import { useAction, useResource, type Resource } from '../../resource';
import { query, setQuery } from '../../router';
import { account } from '../../session';
import { Button, Card, CopyField, ErrorNote, LinkButton, Loaded, Note, Qr, StateBadge, TextField, toast, useNow } from '../../ui';

type Invoice = Schema<'TopUp'>;

/** Interval of reads of an open invoice, besides the event of its payment. */
const OPEN_MS = 5_000;
const AMOUNT_FIRST = '1000';

/** Buys credit: an amount, then the invoice. The address of the page names the invoice, so that a reload keeps it. */
export function TopUp({ connection }: { connection: Resource<Schema<'WalletConnection'>> }) {
  const texts = t().wallet;
  const id = /^\d{1,15}$/.exec(query.value.get('topup') ?? '')?.[0];
  return (
    <Card title={texts.topUp} actions={id !== undefined && <Button onClick={() => setQuery({ topup: null })}>{texts.another}</Button>}>
      {id === undefined ? (
        <Loaded of={connection} rows={2}>
          {({ offered }) => (offered ? <AmountForm /> : <NotOffered />)}
        </Loaded>
      ) : (
        <Shown key={id} id={Number(id)} />
      )}
    </Card>
  );
}

function NotOffered() {
  const texts = t().wallet;
  return (
    <div class="stack">
      <p>{texts.notOffered}</p>
      {account.value?.operator ? <a href="/accounts">{texts.addCredit}</a> : <p>{texts.askOperator}</p>}
    </div>
  );
}

function AmountForm() {
  const texts = t().wallet;
  const [amount, setAmount] = useState(AMOUNT_FIRST);
  const buying = useAction(async (key) => {
    const body = { amountSats: Number(amount) };
    const { invoiceId } = await answer(api.POST('/api/wallet/topup', { params: once(key), body }));
    setQuery({ topup: String(invoiceId) });
  });
  const submit = (event: Event): void => {
    event.preventDefault();
    void buying.run();
  };
  return (
    <form class="stack narrow" onSubmit={submit}>
      <TextField label={texts.amount} help={texts.amountHelp} type="number" min={1} required value={amount} onInput={setAmount} />
      <ErrorNote failure={buying.failure} />
      <div>
        <Button kind="main" type="submit" busy={buying.busy}>
          {texts.createInvoice}
        </Button>
      </div>
    </form>
  );
}

function Shown({ id }: { id: number }) {
  const invoice = useResource(`topup ${id}`, () => answer(api.GET('/api/wallet/topup/{id}', { params: { path: { id } } })), {
    on: ['wallet.credited'],
    every: ({ state }) => (state === 'open' ? OPEN_MS : undefined),
  });
  useAnnouncement(invoice.data);
  return (
    <Loaded of={invoice} rows={5}>
      {(read) => <InvoiceView invoice={read} />}
    </Loaded>
  );
}

/** Tells screen readers when an invoice is paid or expires, and not at first. */
function useAnnouncement(invoice: Invoice | null): void {
  const before = useRef<Invoice['state'] | null>(null);
  const state = invoice?.state ?? null;
  useEffect(() => {
    if (before.current === 'open' && invoice) {
      toast(endText(invoice));
    }
    before.current = state;
  }, [state]);
}

function endText({ state, creditedSats, amountSats }: Invoice): string {
  const texts = t().wallet;
  return state === 'settled' ? texts.paid(sats(creditedSats ?? amountSats)) : texts.expired;
}

/** Time until `until`, by the second: `9:32`. */
function Left({ until }: { until: number }) {
  return <span class="figure">{clock(until - useNow())}</span>;
}

function InvoiceView({ invoice }: { invoice: Invoice }) {
  const texts = t().wallet;
  const { bolt11, amountSats, state, expiresAt } = invoice;
  return (
    <div class="stack">
      <div class="row">
        <strong class="figure">{sats(amountSats)}</strong>
        <StateBadge state={state} />
      </div>
      {state === 'open' ? (
        <div class="invoice">
          {/* Capitals make a smaller code. */}
          <Qr text={`LIGHTNING:${bolt11.toUpperCase()}`} label={texts.qr} />
          <div class="stack">
            <p>
              {texts.waiting} <Left until={expiresAt} />
            </p>
            <CopyField label={texts.invoice} value={bolt11} long />
            <div>
              <LinkButton href={`lightning:${bolt11}`}>{texts.openWallet}</LinkButton>
            </div>
          </div>
        </div>
      ) : (
        <Note kind={state === 'settled' ? 'good' : 'info'}>{endText(invoice)}</Note>
      )}
    </div>
  );
}
