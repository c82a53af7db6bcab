import { t } from '../../i18n';
import { Button, CopyField, Dialog, DialogActions, Note } from '../../ui';
import type { ApiKey } from './index';
import type { Created } from './create';

/** Stands for a key that the service does not show again. */
const PLACEHOLDER = '$KEY';

/** A request that the key may make, as a command line. */
function Curl({ type, scopes, value }: { type: ApiKey['type']; scopes: ApiKey['scopes']; value: string }) {
  const texts = t().keys;
  const [label, path] =
    type === 'public'
      ? [texts.curlStatus, '/api/public/stream/status']
      : scopes.includes('read')
        ? [texts.curlStreams, '/api/streams']
        : [texts.curlWebhooks, '/api/webhooks'];
  return <CopyField label={label} value={`curl -H "X-API-Key: ${value}" ${location.origin}${path}`} long />;
}

interface UseProps {
  apiKey: ApiKey;
  name: string;
  onClose: () => void;
}

/** How to use a key: the value, if the service still has it, and a command. */
export function UseDialog({ apiKey: { type, scopes, key, masked }, name, onClose }: UseProps) {
  const texts = t().keys;
  return (
    <Dialog title={texts.useTitle(name)} onClose={onClose}>
      {key === null ? (
        <p>
          <code>{masked}</code>
        </p>
      ) : (
        <CopyField label={texts.key} value={key} />
      )}
      <Curl type={type} scopes={scopes} value={key ?? PLACEHOLDER} />
      {key === null && <p class="muted">{texts.ownValue}</p>}
      <DialogActions>
        <Button onClick={onClose}>{t().ui.close}</Button>
      </DialogActions>
    </Dialog>
  );
}

/** Shows a new key. A permanent one is shown this once. */
export function CreatedDialog({ created: { type, scopes, key }, onClose }: { created: Created; onClose: () => void }) {
  const texts = t().keys;
  const isSecret = type === 'permanent';
  return (
    <Dialog title={texts.createdTitle} {...(isSecret ? {} : { onClose })}>
      {isSecret && (
        <Note kind="warning">
          <p>{texts.onceOnly}</p>
        </Note>
      )}
      <CopyField label={texts.key} value={key} secret={isSecret} />
      <Curl type={type} scopes={scopes} value={isSecret ? PLACEHOLDER : key} />
      <DialogActions>
        <Button kind="main" onClick={onClose}>
          {isSecret ? texts.stored : t().ui.close}
        </Button>
      </DialogActions>
    </Dialog>
  );
}
