import { t } from '../i18n';
import { Icon, type IconName } from './icon';

export type Tone = 'good' | 'busy' | 'bad' | 'off';

/** A state as word, icon and colour. */
export function Badge({ tone, icon, children }: { tone: Tone; icon: IconName; children: string }) {
  return (
    <span class={`badge ${tone}`}>
      <Icon name={icon} />
      {children}
    </span>
  );
}

const LOOKS = {
  live: ['good', 'live'],
  idle: ['off', 'idle'],
  reconnecting: ['busy', 'retry'],
  stopping: ['busy', 'stop'],
  connecting: ['busy', 'wait'],
  retrying: ['busy', 'retry'],
  failed: ['bad', 'bad'],
  stopped: ['off', 'stop'],
  disabled: ['off', 'idle'],
  recording: ['good', 'live'],
  uploading: ['busy', 'wait'],
  making: ['busy', 'wait'],
  ready: ['good', 'good'],
  pending: ['busy', 'wait'],
  delivered: ['good', 'good'],
  cancelled: ['off', 'idle'],
  loaded: ['good', 'good'],
  failing: ['bad', 'warning'],
  refused: ['bad', 'bad'],
  missing: ['off', 'idle'],
  open: ['busy', 'wait'],
  settled: ['good', 'good'],
  expired: ['off', 'idle'],
  active: ['good', 'good'],
  capped: ['busy', 'warning'],
} as const satisfies Record<string, readonly [Tone, IconName]>;

export type KnownState = keyof typeof LOOKS;

/** The state of a stream, destination, recording, delivery, driver, invoice or refill. A state of a newer service shows as it is. */
export function StateBadge({ state }: { state: string }) {
  const known = state in LOOKS ? (state as KnownState) : null;
  const [tone, icon] = known ? LOOKS[known] : (['off', 'info'] as const);
  return (
    <Badge tone={tone} icon={icon}>
      {known ? t().states[known] : state}
    </Badge>
  );
}
