import { useState } from 'preact/hooks';
import { sats } from '../../format';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { Button, CheckField, Confirm, CopyField, Dialog, DialogActions, ErrorNote, FormDialog, TextField, Time, toast } from '../../ui';
import { change, create, type Account, type AccountChanged } from './data';

const NAME_CHARS_MAX = 128;

/** Why an amount is refused. A number field would take `1e9`. */
function problemOf(amount: string, min: number): string | null {
  const { whole, minimum } = t().problems;
  return !/^\d+$/.test(amount) ? whole : Number(amount) < min ? minimum : null;
}

/** A login link, which is shown once. */
export interface Link {
  /** Name of the account. */
  name: string;
  address: string;
  /** Unix milliseconds. */
  until: number;
}

function linkOf(name: string, { loginLink, linkExpiresAt }: AccountChanged): Link {
  return { name, address: loginLink ?? '', until: linkExpiresAt ?? 0 };
}

interface Props {
  account: Account;
  onClose: () => void;
}

interface ChangeProps extends Props {
  reload: () => Promise<void>;
}

interface CreateProps {
  onCreated: (link: Link) => Promise<void>;
  onClose: () => void;
}

/** Asks for name, credit and rights of a new account. */
export function CreateDialog({ onCreated, onClose }: CreateProps) {
  const texts = t().accounts;
  const [name, setName] = useState('');
  const [credit, setCredit] = useState('');
  const [operator, setOperator] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const creating = useAction(async (key) => {
    const made = await create({ name, operator, ...(credit === '' ? {} : { credit: Number(credit) }) }, key);
    await onCreated(linkOf(name, made));
  });
  const submit = (): void => {
    const found = credit === '' ? null : problemOf(credit, 0);
    setProblem(found);
    if (found === null) {
      void creating.run();
    }
  };
  return (
    <FormDialog
      title={texts.add}
      action={texts.create}
      busy={creating.busy}
      failure={creating.failure}
      onSubmit={submit}
      onClose={onClose}
    >
      <TextField label={texts.name} name="name" help={texts.nameHelp} required focus maxLength={NAME_CHARS_MAX} value={name} onInput={setName} />
      <TextField label={texts.credit} name="credit" help={texts.creditHelp} optional digits problem={problem} value={credit} onInput={setCredit} />
      <CheckField label={texts.operator} help={texts.operatorHelp} checked={operator} onChange={setOperator} />
    </FormDialog>
  );
}

/** Adds prepaid credit, after a question that names it. The page shows the balance of the answer, not the sum of the form. */
export function CreditDialog({ account: { id, name, balance }, reload, onClose }: ChangeProps) {
  const texts = t().accounts;
  const [amount, setAmount] = useState('');
  const [problem, setProblem] = useState<string | null>(null);
  const [isAsking, ask] = useState(false);
  const add = async (key: string): Promise<void> => {
    const changed = await change(id, { credit: Number(amount) }, key);
    toast(texts.credited(name, sats(changed.balance)));
    await reload();
  };
  const submit = (): void => {
    const found = problemOf(amount, 1);
    setProblem(found);
    ask(found === null);
  };
  if (isAsking) {
    return (
      <Confirm title={texts.creditTitle(sats(Number(amount)), name)} action={texts.addCredit} danger={false} work={add} onClose={onClose}>
        <p>{texts.creditText}</p>
      </Confirm>
    );
  }
  return (
    <FormDialog title={texts.addCreditTitle(name)} action={texts.next} busy={false} failure={null} onSubmit={submit} onClose={onClose}>
      <p>
        {texts.balance}: <span class="figure">{sats(balance)}</span>
      </p>
      <TextField label={texts.amount} help={texts.amountHelp} required focus digits problem={problem} value={amount} onInput={setAmount} />
    </FormDialog>
  );
}

export function DisableDialog({ account: { id, name }, reload, onClose }: ChangeProps) {
  const texts = t().accounts;
  const disable = async (key: string): Promise<void> => {
    await change(id, { disabled: true }, key);
    toast(texts.disabled(name));
    await reload();
  };
  return (
    <Confirm title={texts.disableTitle(name)} action={texts.disable} work={disable} onClose={onClose}>
      <p>{texts.disableText}</p>
    </Confirm>
  );
}

export function EnableButton({ account: { id, name }, reload }: Omit<ChangeProps, 'onClose'>) {
  const texts = t().accounts;
  const enabling = useAction(async (key) => {
    await change(id, { disabled: false }, key);
    toast(texts.enabled(name));
    await reload();
  });
  return (
    <>
      <Button kind="quiet" label={texts.enableNamed(name)} busy={enabling.busy} onClick={() => void enabling.run()}>
        {texts.enable}
      </Button>
      <ErrorNote failure={enabling.failure} />
    </>
  );
}

/** Asks before a new login link, because it ends an earlier one. */
export function LinkDialog({ account: { id, name }, onMade, onClose }: Props & { onMade: (link: Link) => Promise<void> }) {
  const texts = t().accounts;
  const make = async (key: string): Promise<void> => onMade(linkOf(name, await change(id, { loginLink: true }, key)));
  return (
    <Confirm title={texts.linkAsk(name)} action={texts.makeLink} danger={false} work={make} onClose={onClose}>
      <p>{texts.linkAskText}</p>
    </Confirm>
  );
}

/** Shows a login link once. */
export function ShownLink({ link: { name, address, until }, onClose }: { link: Link; onClose: () => void }) {
  const texts = t().accounts;
  return (
    <Dialog title={texts.linkTitle(name)}>
      <p>
        {texts.linkText} <Time at={until} />.
      </p>
      <CopyField label={texts.link} value={address} secret />
      <DialogActions>
        <Button kind="main" onClick={onClose}>
          {texts.linkStored}
        </Button>
      </DialogActions>
    </Dialog>
  );
}
