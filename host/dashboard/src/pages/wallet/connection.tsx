import { useState } from 'preact/hooks';
import { answer, api, type Schema } from '../../api';
import { sats } from '../../format';
import { t } from '../../i18n';
import { useAction, useResource, type Resource } from '../../resource';
import { Button, Card, Confirm, Empty, Figures, FormDialog, Loaded, Note, SelectField, StateBadge, TextField, Time, toast } from '../../ui';

type Connected = Schema<'WalletConnection'>;
type Kind = Schema<'WalletType'>;

const KINDS: readonly Kind[] = ['nwc', 'lnbits', 'phoenixd'];
/** Interval of reads: a failed refill has an event only when refills go on failing. */
const CONNECTION_MS = 30_000;

/** The connected wallet. */
export function useConnection(): Resource<Connected> {
  return useResource('connection', () => answer(api.GET('/api/wallet/connection')), { on: ['wallet.'], every: CONNECTION_MS });
}

/** The wallet that refills the credit. */
export function Connection({ connection }: { connection: Resource<Connected> }) {
  const texts = t().wallet;
  const [question, ask] = useState<'edit' | 'disconnect' | null>(null);
  const close = (): void => ask(null);
  const { data, reload } = connection;
  const disconnect = async (): Promise<void> => {
    await answer(api.DELETE('/api/wallet/connection'));
    await reload();
    toast(texts.disconnected);
  };
  const actions = data?.connected && (
    <>
      {data.offered && <Button onClick={() => ask('edit')}>{texts.edit}</Button>}
      <Button kind="danger" onClick={() => ask('disconnect')}>
        {texts.disconnect}
      </Button>
    </>
  );
  return (
    <Card title={texts.connection} actions={actions}>
      <Loaded of={connection} rows={4}>
        {(read) => (read.connected ? <Details wallet={read} /> : <None isOffered={read.offered} onConnect={() => ask('edit')} />)}
      </Loaded>
      {data && question === 'edit' && <ConnectDialog wallet={data} reload={reload} onClose={close} />}
      {data && question === 'disconnect' && (
        <Confirm title={texts.disconnectTitle(nameOf(data))} action={texts.disconnect} work={disconnect} onClose={close}>
          <p>{texts.disconnectText}</p>
        </Confirm>
      )}
    </Card>
  );
}

function nameOf({ type }: Connected): string {
  const kinds: Readonly<Record<string, string>> = t().wallet.walletKinds;
  return type === null ? '' : (kinds[type] ?? type);
}

function None({ isOffered, onConnect }: { isOffered: boolean; onConnect: () => void }) {
  const texts = t().wallet;
  return isOffered ? (
    <Empty title={texts.noWallet}>
      <p class="muted">{texts.noWalletText}</p>
      <Button kind="main" onClick={onConnect}>
        {texts.connect}
      </Button>
    </Empty>
  ) : (
    <p class="muted">{texts.noRefills}</p>
  );
}

function Details({ wallet }: { wallet: Connected }) {
  const texts = t().wallet;
  const { url, refill, state, lastError, lastRefillAt, createdAt } = wallet;
  return (
    <div class="stack">
      <div>
        <div class="row">
          <strong>{nameOf(wallet)}</strong>
          {state !== null && <StateBadge state={state} />}
        </div>
        <p class="small muted target">{url}</p>
      </div>
      {lastError !== null && <Note kind={state === 'failing' ? 'bad' : 'warning'}>{lastError}</Note>}
      {refill && (
        <>
          <Figures
            items={[
              [texts.threshold, sats(refill.thresholdSats)],
              [texts.refillAmount, sats(refill.amountSats)],
            ]}
          />
          <div>
            <div class="spread small">
              <span>{texts.today}</span>
              <span class="figure muted">{texts.of(sats(refill.refilledTodaySats), sats(refill.dailyCapSats))}</span>
            </div>
            <progress class="progress" value={refill.refilledTodaySats} max={refill.dailyCapSats} aria-label={texts.today} />
          </div>
        </>
      )}
      <p class="small muted">
        {lastRefillAt === null ? (
          texts.noRefill
        ) : (
          <>
            {texts.lastRefill} <Time at={lastRefillAt} />
          </>
        )}
        {createdAt !== null && (
          <>
            {' · '}
            {texts.since} <Time at={createdAt} />
          </>
        )}
      </p>
    </div>
  );
}

interface Rules {
  thresholdSats: string;
  amountSats: string;
  dailyCapSats: string;
}

const RULES = ['thresholdSats', 'amountSats', 'dailyCapSats'] as const satisfies readonly (keyof Rules)[];

function ConnectDialog({ wallet, reload, onClose }: { wallet: Connected; reload: () => Promise<void>; onClose: () => void }) {
  const texts = t().wallet;
  const before = KINDS.find((kind) => kind === wallet.type);
  const [type, setType] = useState<Kind>(before ?? 'nwc');
  const [url, setUrl] = useState(wallet.url ?? '');
  const [secret, setSecret] = useState('');
  const [rules, setRules] = useState<Rules>({
    thresholdSats: String(wallet.refill?.thresholdSats ?? ''),
    amountSats: String(wallet.refill?.amountSats ?? ''),
    dailyCapSats: String(wallet.refill?.dailyCapSats ?? ''),
  });
  const isKept = type === before && url === wallet.url;
  const saving = useAction(async () => {
    const refill = Object.fromEntries(RULES.filter((name) => rules[name] !== '').map((name) => [name, Number(rules[name])]));
    const body = { type, url, refill, ...(secret === '' || type === 'nwc' ? {} : { secret }) };
    await answer(api.PUT('/api/wallet/connection', { body }));
    await reload();
    toast(texts.connected);
    onClose();
  });
  return (
    <FormDialog
      title={wallet.connected ? texts.editTitle(nameOf(wallet)) : texts.connect}
      action={wallet.connected ? t().ui.save : texts.connect}
      busy={saving.busy}
      failure={saving.failure}
      onSubmit={() => void saving.run()}
      onClose={onClose}
    >
      <SelectField
        label={texts.kind}
        value={type}
        options={KINDS.map((kind) => [kind, texts.walletKinds[kind]] as const)}
        onChange={(kind) => {
          setType(kind);
          setUrl(kind === before ? (wallet.url ?? '') : '');
        }}
      />
      <TextField
        label={texts.addresses[type]}
        name="url"
        help={texts.addressHelp[type]}
        // The text of NWC holds a secret.
        type={type === 'nwc' && !isKept ? 'password' : 'text'}
        required
        value={url}
        onInput={setUrl}
      />
      {type !== 'nwc' && (
        <TextField
          label={texts.secrets[type]}
          name="secret"
          help={isKept ? texts.secretKept : undefined}
          type="password"
          autocomplete="new-password"
          required={!isKept}
          value={secret}
          onInput={setSecret}
        />
      )}
      <RuleFields help={wallet.connected ? texts.rulesKept : texts.rulesHelp} rules={rules} onChange={setRules} />
    </FormDialog>
  );
}

function RuleFields({ help, rules, onChange }: { help: string; rules: Rules; onChange: (rules: Rules) => void }) {
  const texts = t().wallet;
  return (
    <fieldset class="group">
      <legend>{texts.refills}</legend>
      <p class="help">{help}</p>
      {RULES.map((name) => (
        <TextField
          key={name}
          label={texts.rules[name]}
          name={`refill.${name}`}
          type="number"
          min={0}
          optional
          value={rules[name]}
          onInput={(value) => onChange({ ...rules, [name]: value })}
        />
      ))}
    </fieldset>
  );
}
