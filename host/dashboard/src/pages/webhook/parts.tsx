// Parts that the list and the page of a webhook share.

import { t } from '../../i18n';
import { useAction } from '../../resource';
import { Badge, Button, CopyField, Dialog, DialogActions, ErrorNote, Note, Time } from '../../ui';
import { enable, type Webhook } from './data';

interface ResultProps {
  ok: boolean;
  /** HTTP status; `null` without an answer. */
  status: number | null;
}

/** The result of an attempt. */
export function Result({ ok, status }: ResultProps) {
  return (
    <Badge tone={ok ? 'good' : 'bad'} icon={ok ? 'good' : 'bad'}>
      {status === null ? t().webhooks.noAnswer : String(status)}
    </Badge>
  );
}

/** The newest attempt. */
export function LastResult({ webhook: { lastDelivery } }: { webhook: Webhook }) {
  return lastDelivery ? (
    <span class="cell">
      <Result {...lastDelivery} />
      <span class="small muted">
        <Time at={lastDelivery.at} />
      </span>
    </span>
  ) : (
    <span class="muted">{t().webhooks.nothingSent}</span>
  );
}

interface DisabledProps {
  webhook: Webhook;
  reload: () => Promise<void>;
}

/** Why a webhook was disabled, and the way back. */
export function DisabledNote({ webhook, reload }: DisabledProps) {
  const texts = t().webhooks;
  const enabling = useAction(async (key) => {
    await enable(webhook.id, key);
    await reload();
  });
  return (
    <Note kind="bad">
      <p>{webhook.disabledReason ?? texts.disabled}</p>
      <p class="small">{texts.disabledAdvice}</p>
      <ErrorNote failure={enabling.failure} />
      <Button label={texts.enableNamed(webhook.url)} busy={enabling.busy} onClick={() => void enabling.run()}>
        {texts.enable}
      </Button>
    </Note>
  );
}

interface SecretProps {
  /** The new secret. */
  secret: string;
  /** Until when the old secret signs too, Unix milliseconds; `null` if there was none. */
  oldUntil?: number | null;
  onClose: () => void;
}

/** Shows a new secret once. */
export function SecretDialog({ secret, oldUntil = null, onClose }: SecretProps) {
  const texts = t().webhooks;
  return (
    <Dialog title={texts.secretTitle}>
      <p>{texts.secretOnce}</p>
      <CopyField label={texts.secret} value={secret} secret />
      {oldUntil !== null && (
        <p class="muted">
          {texts.oldSecret} <Time at={oldUntil} />.
        </p>
      )}
      <DialogActions>
        <Button kind="main" onClick={onClose}>
          {texts.secretStored}
        </Button>
      </DialogActions>
    </Dialog>
  );
}
