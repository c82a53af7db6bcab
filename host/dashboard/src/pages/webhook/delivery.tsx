import { answer, api, once } from '../../api';
import { date, time } from '../../format';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { Button, CopyField, Countdown, Dialog, DialogActions, ErrorNote, Figures, StateBadge, Time, toast } from '../../ui';
import { latency, type Delivery, type Webhook } from './data';
import { withKey } from './key';
import { Result } from './parts';

/** The service shows the newest attempts of a delivery. */
const ATTEMPTS_SHOWN = 20;

/** Attempts can follow each other within seconds. */
const exact = (at: number): string => `${date(at)}, ${time(at)}`;

interface Props {
  webhook: Webhook;
  delivery: Delivery;
  reload: () => Promise<void>;
  onClose: () => void;
}

/** One delivery: its attempts with the receiver's answers, its body, and the button that sends it again. */
export function DeliveryDialog({ webhook, delivery, reload, onClose }: Props) {
  const texts = t().webhook;
  const { id: deliveryId, type, eventId, state, createdAt, nextAttemptAt, body, attempts } = delivery;
  const sending = useAction(async (key) => {
    const params = { path: { id: webhook.id, deliveryId }, ...once(key) };
    await withKey((headers) => answer(api.POST('/api/webhooks/{id}/deliveries/{deliveryId}/redeliver', { headers, params })));
    toast(texts.resent(type));
    await reload();
  });
  const figures = [
    [texts.event, <code>{type}</code>] as const,
    [texts.state, <StateBadge state={state} />] as const,
    [texts.created, <Time at={createdAt} show={exact} />] as const,
    ...(nextAttemptAt === null ? [] : [[texts.next, <Countdown until={nextAttemptAt} />] as const]),
  ];
  return (
    <Dialog title={t().webhooks.eventNames[type]} onClose={onClose}>
      <div class="compact">
        <Figures items={figures} />
      </div>
      <CopyField label={texts.eventId} value={eventId} />
      <h3>{texts.attempts}</h3>
      {attempts.length === 0 && <p class="muted">{texts.noAttempts}</p>}
      {attempts.length >= ATTEMPTS_SHOWN && <p class="small muted">{texts.newestAttempts(ATTEMPTS_SHOWN)}</p>}
      <ul class="attempts">
        {[...attempts].reverse().map((attempt) => (
          <li key={attempt.at}>
            <div class="row">
              <Result {...attempt} />
              <span class="small muted">
                <Time at={attempt.at} show={exact} /> · {latency(attempt.durationMs)}
              </span>
            </div>
            <Answer {...attempt} />
          </li>
        ))}
      </ul>
      <CopyField label={texts.body} value={body} long />
      <ErrorNote failure={sending.failure} />
      <DialogActions>
        <Button onClick={onClose}>{t().ui.close}</Button>
        <Button kind="main" icon="retry" busy={sending.busy} onClick={() => void sending.run()}>
          {texts.resend}
        </Button>
      </DialogActions>
    </Dialog>
  );
}

/** Error and beginning of the answer of one attempt. */
export function Answer({ error, answer }: { error: string | null; answer: string }) {
  return (
    <>
      {error !== null && <p>{error}</p>}
      {answer !== '' && (
        <pre tabIndex={0} role="group" aria-label={t().webhook.answer}>
          {answer}
        </pre>
      )}
    </>
  );
}
