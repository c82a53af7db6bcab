import { useState } from 'preact/hooks';
import { t } from '../../i18n';
import type { StreamDetail } from '../../store';
import { TextField } from '../../ui';
import { MakeDialog, SECONDS_MAX } from '../clips/make';

/** Seconds of a clip when nothing is entered. */
const SECONDS = '30';

/** Makes a clip of the newest seconds. */
export function ClipDialog({ stream, onClose }: { stream: StreamDetail; onClose: () => void }) {
  const texts = t().clips;
  const [seconds, setSeconds] = useState(SECONDS);
  return (
    <MakeDialog name={stream.label} streamKeyId={stream.id} range={() => ({ lastSeconds: Number(seconds) })} onClose={onClose}>
      <TextField
        label={texts.lastSeconds}
        help={texts.lastSecondsHelp}
        name="lastSeconds"
        type="number"
        required
        min={1}
        max={SECONDS_MAX}
        value={seconds}
        onInput={setSeconds}
      />
    </MakeDialog>
  );
}
