import type { Schema } from '../../api';
import { number } from '../../format';
import { t } from '../../i18n';
import { useKeys } from '../../store';
import { CopyField, Figures, LinkButton, Loaded } from '../../ui';
import { NewPublicKey } from '../keys/public';

/** Viewers while live, public key, addresses and the code to embed of a destination that viewers can play. */
export function Playback({ playback }: { playback: Schema<'StreamPlayback'> }) {
  const keys = useKeys();
  const { destinationId, viewers } = playback;
  return (
    <div class="stack sunken">
      {viewers !== null && <Figures items={[[t().playback.viewers, number(viewers)]]} />}
      <Loaded of={keys} rows={2}>
        {({ items }) => {
          const key = items.find((each) => each.type === 'public' && each.destinationId === destinationId)?.key;
          return key ? <Addresses url={playback.url} publicKey={key} /> : <NewPublicKey destinationId={destinationId} />;
        }}
      </Loaded>
    </div>
  );
}

/** The player page of a playback address. */
function watchAddress(url: string, publicKey: string): string {
  const page = url.replace('/hls/', '/watch/').replace(/\/index\.m3u8$/, '');
  return `${page}?apiKey=${publicKey}`;
}

function Addresses({ url, publicKey }: { url: string; publicKey: string }) {
  const texts = t().playback;
  const page = watchAddress(url, publicKey);
  const embed = `<iframe src="${page}" width="960" height="540" allow="autoplay; fullscreen" title="Live" style="border: 0"></iframe>`;
  return (
    <div class="stack">
      <CopyField label={texts.key} value={publicKey} />
      <CopyField label={texts.address} value={`${url}?apiKey=${publicKey}`} />
      <CopyField label={texts.embed} value={embed} long />
      <div>
        <LinkButton href={page}>{texts.open}</LinkButton>
      </div>
    </div>
  );
}
