import { useEffect, useState } from 'preact/hooks';
import { t } from '../../i18n';
import type { Pages } from '../../resource';
import { query, setQuery } from '../../router';
import { AsOf, Button, Card, Choice, Empty, Pager, ReadNote, Skeleton, StateBadge, Time } from '../../ui';
import { latency, type Delivery, type DeliveryState, type Webhook } from './data';
import { DeliveryDialog } from './delivery';
import { Result } from './parts';
import { useVisible } from './visible';

const STATES: readonly DeliveryState[] = ['pending', 'delivered', 'failed', 'cancelled'];

/** The state to show, from the address; `null` for all. */
export function chosenState(): DeliveryState | null {
  return STATES.find((name) => name === query.value.get('state')) ?? null;
}

/** The next page is read when fewer rows than this are below the screen. */
const AHEAD = 50;

interface LogProps {
  webhook: Webhook;
  /** Those in the chosen state. */
  deliveries: Pages<Delivery>;
}

/** The delivery log: filter, rows, and one delivery in a dialog. */
export function Log({ webhook, deliveries }: LogProps) {
  const texts = t().webhook;
  const state = chosenState();
  const [opened, open] = useState<Delivery | null>(null);
  const { items, failure, reload } = deliveries;
  const options = [['', texts.all] as const, ...STATES.map((name) => [name, t().states[name]] as const)];
  // After a failure the person decides, because the limit of reads may be reached.
  const more = failure ? undefined : deliveries.more;
  return (
    <Card title={texts.deliveries}>
      <div>
        <Choice<string> label={texts.filter} value={state ?? ''} options={options} onChange={(chosen) => setQuery({ state: chosen })} />
      </div>
      {!items && <ReadNote of={deliveries} />}
      <AsOf of={deliveries} />
      {!items && !failure && <Skeleton rows={6} />}
      {items?.length === 0 && <Empty title={state ? texts.noneInState : texts.none}>{!state && <p class="muted">{texts.noneAdvice}</p>}</Empty>}
      {items && items.length > 0 && (
        <Rows deliveries={items} hasMore={deliveries.hasMore} isStale={deliveries.stale} onOpen={open} onEnd={more} />
      )}
      {items && <ReadNote of={deliveries} />}
      <Pager of={deliveries} />
      {opened && (
        <DeliveryDialog
          webhook={webhook}
          // The list has the newest state, unless the filter hides the delivery meanwhile.
          delivery={items?.find(({ id }) => id === opened.id) ?? opened}
          reload={reload}
          onClose={() => open(null)}
        />
      )}
    </Card>
  );
}

interface RowsProps {
  deliveries: readonly Delivery[];
  hasMore: boolean;
  isStale: boolean;
  onOpen: (delivery: Delivery) => void;
  /** Reads more; absent while that fails. */
  onEnd: (() => Promise<void>) | undefined;
}

/** A table of rows with the same height, of which only those near the screen exist. */
function Rows({ deliveries, hasMore, isStale, onOpen, onEnd }: RowsProps) {
  const texts = t().webhook;
  const count = deliveries.length;
  const { box, range, height } = useVisible(count);
  const isNearEnd = range.last + AHEAD > count && range.last > 0;
  useEffect(() => {
    if (isNearEnd && hasMore && range.first > 0) {
      void onEnd?.();
    }
  }, [isNearEnd, hasMore, count, range.first > 0]);
  const titles = [t().ui.time, texts.event, texts.state, texts.attempts, texts.result, texts.latency];
  return (
    <div class={isStale ? 'log stale' : 'log'} role="table" aria-label={texts.deliveries} aria-rowcount={hasMore ? -1 : count + 1}>
      <div role="rowgroup">
        <div role="row" aria-rowindex={1} class="log-row log-head">
          {titles.map((title) => (
            <span key={title} role="columnheader">
              {title}
            </span>
          ))}
          <span role="columnheader">
            <span class="hidden">{texts.details}</span>
          </span>
        </div>
      </div>
      <div role="rowgroup" ref={box} class="log-body" style={{ height: `${count * height}px` }}>
        {deliveries.slice(range.first, range.last).map((delivery, index) => (
          <Row key={delivery.id} delivery={delivery} place={range.first + index} height={height} onOpen={onOpen} />
        ))}
      </div>
    </div>
  );
}

interface RowProps {
  delivery: Delivery;
  /** Index in the list. */
  place: number;
  height: number;
  onOpen: (delivery: Delivery) => void;
}

function Row({ delivery, place, height, onOpen }: RowProps) {
  const texts = t().webhook;
  const { type, state, createdAt, attempts } = delivery;
  const newest = attempts.at(-1);
  return (
    <div role="row" aria-rowindex={place + 2} class="log-row" style={{ top: `${place * height}px` }}>
      <span role="cell" class="log-time">
        <Time at={createdAt} />
      </span>
      <span role="cell" class="log-event">
        {type}
      </span>
      <span role="cell" class="log-state">
        <StateBadge state={state} />
      </span>
      <span role="cell" class="log-attempts figure">
        {attempts.length}
      </span>
      <span role="cell" class="log-result">
        {newest ? <Result {...newest} /> : '–'}
      </span>
      <span role="cell" class="log-latency figure">
        {newest ? latency(newest.durationMs) : '–'}
      </span>
      <span role="cell" class="log-open">
        <Button kind="quiet" label={texts.detailsNamed(type)} onClick={() => onOpen(delivery)}>
          {texts.details}
        </Button>
      </span>
    </div>
  );
}
