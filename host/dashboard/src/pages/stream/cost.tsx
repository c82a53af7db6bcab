import { useEffect, useRef, useState } from 'preact/hooks';
import { answer, api, once, type Schema } from '../../api';
import { clock, millisats, sats } from '../../format';
import { t } from '../../i18n';
import { sharesOf, type Share } from '../../ledger';
import { useAction, useResource } from '../../resource';
import { useConfig, useCost, useStream, type StreamDetail } from '../../store';
import { Button, Card, Countdown, Figures, FormDialog, Loaded, Note, Table, TextField, Time, toast, useNow, type Column } from '../../ui';
import { useNames } from './names';

type ActiveStream = Schema<'ActiveStream'>;

const MINUTE_MS = 60_000;

/** The cost of the running session, its limits and their forecast. */
export function Cost({ stream }: { stream: StreamDetail }) {
  const texts = t().cost;
  const cost = useCost();
  const [isEditing, edit] = useState(false);
  const session = cost.data?.streams.find(({ streamKeyId }) => streamKeyId === stream.id) ?? null;
  return (
    <Card title={texts.title} actions={<Button onClick={() => edit(true)}>{texts.setLimits}</Button>}>
      <Loaded of={cost} rows={2}>
        {() =>
          session ? (
            <Ticker session={session} limits={stream.limits} />
          ) : (
            <p class="muted">{stream.status === 'idle' ? texts.idle : t().ui.loading}</p>
          )
        }
      </Loaded>
      <LimitBars stream={stream} session={session} />
      {session && <Breakdown key={session.sessionId} session={session} stream={stream} />}
      <Prices />
      {isEditing && <LimitsDialog stream={stream} onClose={() => edit(false)} />}
    </Card>
  );
}

/** When the session ends by itself, and by which limit; `null` if that is not expected. */
function endOf({ startedAt, budgetEndsAt }: ActiveStream, limits: StreamDetail['limits']): { at: number; text: string } | null {
  const { ends } = t().cost;
  const { maxSats, maxDurationMinutes } = limits;
  const durationEndsAt = maxDurationMinutes === undefined ? Infinity : startedAt + maxDurationMinutes * MINUTE_MS;
  if (durationEndsAt < (budgetEndsAt ?? Infinity)) {
    return { at: durationEndsAt, text: ends.duration };
  }
  return budgetEndsAt === null ? null : { at: budgetEndsAt, text: maxSats === undefined ? ends.balance : ends.budget };
}

/** Figures of the service: nothing is counted on in between. */
function Ticker({ session, limits }: { session: ActiveStream; limits: StreamDetail['limits'] }) {
  const texts = t().cost;
  const { totalCharged, ratePerMinute } = session;
  const end = endOf(session, limits);
  return (
    <div class="stack">
      <Figures
        items={[
          [texts.charged, sats(totalCharged)],
          [texts.perMinute, sats(ratePerMinute)],
          [texts.perHour, sats(ratePerMinute * 60)],
        ]}
      />
      {end === null ? (
        <p class="small muted">{texts.noEnd}</p>
      ) : (
        <p>
          {end.text} <Time at={end.at} /> ({texts.in} <Countdown until={end.at} />)
        </p>
      )}
    </div>
  );
}

function Prices() {
  const { data } = useConfig();
  if (!data) {
    return null;
  }
  const { FREE_PLATFORMS: free, COST_PER_PLATFORM: minute } = data.pricing;
  const { BANDWIDTH_LIMIT_GB_PER_HOUR: gigabytes, BANDWIDTH_OVERAGE_SATS_PER_GB: overage } = data.pricing;
  return <p class="help">{t().cost.prices(free, sats(minute), gigabytes, sats(overage))}</p>;
}

/** Share of a limit from which the page warns, as the event `limit.warning` does. */
const WARN_SHARE = 0.8;

interface Bar {
  key: 'maxSats' | 'maxDurationMinutes';
  /** `null` without a session, or while its cost is not known. */
  value: number | null;
  max: number;
  format: (value: number) => string;
}

function LimitBars({ stream, session }: { stream: StreamDetail; session: ActiveStream | null }) {
  const texts = t().cost;
  const now = useNow();
  const { limits, startedAt } = stream;
  const bars: Bar[] = [];
  if (limits.maxSats !== undefined) {
    bars.push({ key: 'maxSats', value: session?.totalCharged ?? null, max: limits.maxSats, format: sats });
  }
  if (limits.maxDurationMinutes !== undefined) {
    const elapsed = startedAt === undefined ? null : Math.max(0, now - startedAt);
    bars.push({ key: 'maxDurationMinutes', value: elapsed, max: limits.maxDurationMinutes * MINUTE_MS, format: clock });
  }
  const near = bars.filter(({ value, max }) => value !== null && value >= max * WARN_SHARE);
  useWarning(session && near.map(({ key }) => key));
  return bars.length === 0 ? (
    <p class="muted">{texts.noLimits}</p>
  ) : (
    <>
      {near.map(({ key }) => (
        <Note key={key} kind="warning">
          {texts.near[key]}
        </Note>
      ))}
      {bars.map((bar) => (
        <LimitBar key={bar.key} bar={bar} isNear={near.includes(bar)} />
      ))}
    </>
  );
}

/** Tells screen readers once when a limit of a session comes near, and not at first. */
function useWarning(near: readonly Bar['key'][] | null): void {
  const told = useRef<readonly Bar['key'][] | null>(null);
  useEffect(() => {
    for (const key of (near ?? []).filter((key) => told.current && !told.current.includes(key))) {
      toast(t().cost.near[key]);
    }
    told.current = near;
  }, [near?.join()]);
}

function LimitBar({ bar, isNear }: { bar: Bar; isNear: boolean }) {
  const texts = t().cost;
  const { key, value, max, format } = bar;
  const name = texts.limits[key];
  return (
    <div>
      <div class="spread small">
        <span>{name}</span>
        <span class="figure muted">{value === null ? format(max) : texts.of(format(value), format(max))}</span>
      </div>
      <progress class={isNear ? 'progress warning' : 'progress'} value={Math.min(value ?? 0, max)} max={max} aria-label={name} />
    </div>
  );
}

/** Interval of reads of the ledger while the breakdown is open: charges are posted by the minute. */
const LEDGER_MS = 60_000;

/** The charges of the session in the ledger, read when they are wanted. */
function Breakdown({ session, stream }: { session: ActiveStream; stream: StreamDetail }) {
  const [isOpen, open] = useState(false);
  return (
    <details onToggle={(event) => open(event.currentTarget.open)}>
      <summary>{t().cost.breakdown}</summary>
      {isOpen && <Shares session={session} stream={stream} />}
    </details>
  );
}

function Shares({ session, stream }: { session: ActiveStream; stream: StreamDetail }) {
  const texts = t().cost;
  const { sessionId, startedAt } = session;
  const shares = useResource(`shares ${sessionId}`, () => sharesOf(sessionId, startedAt), { every: LEDGER_MS });
  const kinds: Readonly<Record<string, string>> = t().wallet.kinds;
  const names = useNames(stream.destinations);
  const nameOf = ({ destinationId: id }: Share): string => (id === null ? '–' : (names.get(id) ?? texts.deleted(id)));
  const columns: Column<Share>[] = [
    { title: texts.destination, cell: nameOf },
    { title: texts.kind, cell: ({ kind }) => kinds[kind] ?? kind },
    { title: texts.amount, numeric: true, cell: ({ msat }) => millisats(msat) },
  ];
  return (
    <Loaded of={shares} rows={2}>
      {({ shares, isCut }) => (
        <div class="stack">
          {shares.length === 0 ? (
            <p class="muted">{texts.nothing}</p>
          ) : (
            <Table
              caption={texts.breakdown}
              columns={columns}
              rows={shares}
              rowKey={({ destinationId, kind }) => `${destinationId} ${kind}`}
            />
          )}
          {isCut && <p class="help">{texts.cut}</p>}
        </div>
      )}
    </Loaded>
  );
}

const LIMITS_MAX = { maxSats: 2_100_000_000_000_000, maxDurationMinutes: 525_600 } as const;

/** The number in a field: `null` if it is empty, `NaN` if it is no limit. */
function limitOf(text: string, max: number): number | null {
  const value = Number(text);
  return text.trim() === '' ? null : Number.isInteger(value) && value >= 1 && value <= max ? value : NaN;
}

function LimitsDialog({ stream, onClose }: { stream: StreamDetail; onClose: () => void }) {
  const texts = t().cost;
  const { id, limits } = stream;
  const { reload } = useStream(id);
  const [budget, setBudget] = useState(String(limits.maxSats ?? ''));
  const [duration, setDuration] = useState(String(limits.maxDurationMinutes ?? ''));
  const maxSats = limitOf(budget, LIMITS_MAX.maxSats);
  const maxDurationMinutes = limitOf(duration, LIMITS_MAX.maxDurationMinutes);
  const saving = useAction(async (key) => {
    const body = { maxSats, maxDurationMinutes };
    await answer(api.POST('/api/streams/{id}/limits', { params: { path: { id }, ...once(key) }, body }));
    await reload();
    toast(texts.saved);
    onClose();
  });
  const problem = (value: number | null): string | null => (Number.isNaN(value) ? texts.refused : null);
  const submit = (): void => {
    if (!Number.isNaN(maxSats) && !Number.isNaN(maxDurationMinutes)) {
      void saving.run();
    }
  };
  return (
    <FormDialog
      title={texts.limitsTitle(stream.label)}
      action={t().ui.save}
      busy={saving.busy}
      failure={saving.failure}
      onSubmit={submit}
      onClose={onClose}
    >
      <p>{texts.limitsText}</p>
      <TextField
        label={texts.budgetField}
        name="maxSats"
        help={texts.budgetHelp}
        problem={problem(maxSats)}
        type="number"
        min={1}
        optional
        focus
        value={budget}
        onInput={setBudget}
      />
      <TextField
        label={texts.durationField}
        name="maxDurationMinutes"
        help={texts.durationHelp}
        problem={problem(maxDurationMinutes)}
        type="number"
        min={1}
        optional
        value={duration}
        onInput={setDuration}
      />
    </FormDialog>
  );
}
