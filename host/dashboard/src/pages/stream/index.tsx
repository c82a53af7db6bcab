import { useState } from 'preact/hooks';
import { answer, api, once } from '../../api';
import { time } from '../../format';
import { t } from '../../i18n';
import { useAction, type Resource } from '../../resource';
import { navigate } from '../../router';
import type { PageProps } from '../../routes';
import { FIGURES_MS, useConfig, useStream, type StreamDetail } from '../../store';
import {
  AreaField,
  Button,
  Card,
  CheckField,
  Confirm,
  CopyButton,
  CopyField,
  Empty,
  FormDialog,
  LinkButton,
  Loaded,
  Note,
  Page,
  StateBadge,
  TextField,
  toast,
} from '../../ui';
import { ffmpegLine, ffmpegShown, recentRefusal, srtAddress } from '../../ingest';
import { ClipDialog } from './clip';
import { Cost } from './cost';
import { Destinations } from './destinations';
import { Health } from './health';
import { Preview } from './preview';
import { Slate } from './slate';

export default function View({ params }: PageProps) {
  const id = Number(params['id']);
  // Refusals of encoders have no events.
  const stream = useStream(id, { idle: FIGURES_MS });
  const above = { href: '/', text: t().nav.streams };
  if (stream.failure?.status === 404) {
    return (
      <Page title={t().stream.unknown} above={above}>
        <Empty title={t().stream.unknownAdvice}>
          <LinkButton href="/">{t().nav.streams}</LinkButton>
        </Empty>
      </Page>
    );
  }
  const { data } = stream;
  return (
    <Page
      // The title gets the focus again when it is known, so that screen readers say it.
      key={data ? 'loaded' : 'loading'}
      title={data?.label ?? t().ui.loading}
      above={above}
      beside={data && <State of={stream} state={data.state} />}
      actions={data && <Actions stream={data} reload={stream.reload} />}
    >
      <Loaded of={stream} rows={8}>
        {(detail) => <Parts stream={detail} reload={stream.reload} />}
      </Loaded>
    </Page>
  );
}

/** The state, grey when it may be old. */
function State({ of, state }: { of: Resource<StreamDetail>; state: string }) {
  return (
    <span class={of.stale ? 'stale' : undefined}>
      <StateBadge state={state} />
    </span>
  );
}

interface Props {
  stream: StreamDetail;
  reload: () => Promise<void>;
}

function Parts({ stream, reload }: Props) {
  const isIdle = stream.state === 'idle';
  const encoder = <Encoder stream={stream} reload={reload} />;
  return (
    <div class="columns">
      <div class="stack wide">
        {isIdle ? encoder : <Preview stream={stream} reload={reload} />}
        {!isIdle && <Health stream={stream} />}
        <Destinations stream={stream} reload={reload} />
      </div>
      <div class="stack wide">
        {!isIdle && encoder}
        <Cost stream={stream} />
        <Slate stream={stream} reload={reload} />
      </div>
    </div>
  );
}

type Question = 'stop' | 'edit' | 'delete' | 'clip';

function Actions({ stream, reload }: Props) {
  const texts = t().stream;
  const [question, ask] = useState<Question | null>(null);
  const close = (): void => ask(null);
  const { id, label } = stream;
  const path = { id };
  const stop = async (key: string): Promise<void> => {
    await answer(api.POST('/api/streams/{id}/stop', { params: { path, ...once(key) } }));
    toast(texts.stopped);
    await reload();
  };
  const remove = async (): Promise<void> => {
    await answer(api.DELETE('/api/streams/{id}', { params: { path } }));
    toast(texts.deleted(label));
    navigate('/', { replace: true });
  };
  return (
    <>
      <Button onClick={() => ask('edit')}>{texts.edit}</Button>
      <Button onClick={() => ask('delete')}>{texts.delete}</Button>
      {stream.status === 'active' && <Button onClick={() => ask('clip')}>{t().clips.make}</Button>}
      {stream.status === 'active' && (
        <Button kind="danger" icon="stop" onClick={() => ask('stop')}>
          {texts.stop}
        </Button>
      )}
      {question === 'clip' && <ClipDialog stream={stream} onClose={close} />}
      {question === 'edit' && <Edit stream={stream} reload={reload} onClose={close} />}
      {question === 'stop' && (
        <Confirm title={texts.stopTitle(label)} action={texts.stop} work={stop} onClose={close}>
          <p>{texts.stopText}</p>
        </Confirm>
      )}
      {question === 'delete' && (
        <Confirm title={texts.deleteTitle(label)} action={texts.delete} work={remove} onClose={close}>
          <p>{texts.deleteText}</p>
        </Confirm>
      )}
    </>
  );
}

/** The lines that are not empty. */
function lines(text: string): string[] {
  return text.split(/\s+/).filter(Boolean);
}

function Edit({ stream, reload, onClose }: Props & { onClose: () => void }) {
  const texts = t().stream;
  const [label, setLabel] = useState(stream.label);
  const [addresses, setAddresses] = useState(stream.allowedAddresses.join('\n'));
  const [passphrase, setPassphrase] = useState('');
  const [removes, setRemoves] = useState(false);
  const hasSrt = Boolean(useConfig().data?.ingest.srt);
  const saving = useAction(async () => {
    await answer(
      api.PATCH('/api/streams/{id}', {
        params: { path: { id: stream.id } },
        body: {
          label,
          allowedAddresses: lines(addresses),
          ...(removes || passphrase ? { srtPassphrase: removes ? null : passphrase } : {}),
        },
      }),
    );
    await reload();
    onClose();
  });
  return (
    <FormDialog
      title={texts.editTitle(stream.label)}
      action={t().ui.save}
      busy={saving.busy}
      failure={saving.failure}
      onSubmit={() => void saving.run()}
      onClose={onClose}
    >
      <TextField label={t().streams.label} name="label" required maxLength={128} value={label} onInput={setLabel} />
      <AreaField
        label={texts.addresses}
        name="allowedAddresses"
        help={texts.addressesHelp}
        optional
        value={addresses}
        onInput={setAddresses}
      />
      {hasSrt && !removes && (
        <TextField
          label={texts.passphrase}
          name="srtPassphrase"
          help={`${stream.hasSrtPassphrase ? texts.passphraseKept : ''} ${texts.passphraseHelp}`.trim()}
          optional
          minLength={10}
          maxLength={79}
          value={passphrase}
          onInput={setPassphrase}
        />
      )}
      {hasSrt && stream.hasSrtPassphrase && (
        <CheckField label={texts.removePassphrase} checked={removes} onChange={setRemoves} />
      )}
    </FormDialog>
  );
}

/** Server and key, and before the encoder connects the ways to use them. */
function Encoder({ stream, reload }: Props) {
  const texts = t().stream;
  const [isAsking, ask] = useState(false);
  const config = useConfig();
  const isIdle = stream.state === 'idle';
  const srtHelp = stream.hasSrtPassphrase ? `${texts.srtHelp} ${texts.srtEncrypted}` : texts.srtHelp;
  const rotate = async (key: string): Promise<void> => {
    await answer(api.POST('/api/streams/{id}/rotate', { params: { path: { id: stream.id }, ...once(key) } }));
    toast(texts.rotated);
    await reload();
  };
  return (
    <Card title={isIdle ? texts.waiting : texts.encoder} actions={<Button onClick={() => ask(true)}>{texts.rotate}</Button>}>
      <Refused stream={stream} />
      {isIdle && <LastEnd stream={stream} />}
      {isIdle && <p>{texts.waitingText}</p>}
      <Loaded of={config} rows={1}>
        {({ ingest: { rtmp, rtmps, srt, whip } }) => (
          <div class="stack">
            <CopyField label={texts.server} value={rtmp} />
            {rtmps !== null && <CopyField label={texts.tlsServer} value={rtmps} />}
            {srt !== null && (
              <>
                <CopyField label={texts.srtServer} value={srtAddress(srt, stream.streamKey)} help={srtHelp} secret />
                <CopyField label={texts.srtBackup} value={srtAddress(srt, stream.backupKey)} help={srtHelp} secret />
              </>
            )}
            {whip !== null && <CopyField label={texts.whipServer} value={whip} help={texts.whipHelp} />}
          </div>
        )}
      </Loaded>
      <CopyField label={texts.key} value={stream.streamKey} secret />
      <CopyField label={texts.backupKey} value={stream.backupKey} help={texts.backupHelp} secret />
      {isIdle && config.data && <Ways server={config.data.ingest.rtmp} streamKey={stream.streamKey} />}
      {isAsking && (
        <Confirm title={texts.rotateTitle(stream.label)} action={texts.rotate} work={rotate} onClose={() => ask(false)}>
          <p>{texts.rotateText}</p>
          {stream.status === 'active' && <Note kind="warning">{texts.rotateLive}</Note>}
        </Confirm>
      )}
    </Card>
  );
}

/** Why an encoder was refused a short time ago. */
function Refused({ stream: { refusals } }: { stream: StreamDetail }) {
  const refusal = recentRefusal(refusals, Date.now());
  return refusal ? (
    <Note kind="warning">
      <p>{t().stream.refused(time(refusal.at), refusal.error)}</p>
    </Note>
  ) : null;
}

/** The limits that end a session, by reason. */
const LIMITS = { max_sats: 'maxSats', max_duration: 'maxDurationMinutes' } as const;

/** Why the last session ended, and how the next one can start. A reason of a newer service shows as it is. */
function LastEnd({ stream: { lastEndReason: reason, limits } }: { stream: StreamDetail }) {
  if (reason === null) {
    return null;
  }
  const texts = t().stream;
  const reasons: Readonly<Record<string, string>> = texts.reasons;
  const limit = reason in LIMITS ? LIMITS[reason as keyof typeof LIMITS] : null;
  return (
    <Note>
      <p>{texts.ended(reasons[reason] ?? reason)}</p>
      {(limit || reason === 'stopped') && <p>{texts.cooldown}</p>}
      {limit && limits[limit] !== undefined && <p>{texts.raise}</p>}
    </Note>
  );
}

function Ways({ server, streamKey }: { server: string; streamKey: string }) {
  const texts = t().stream;
  return (
    <div class="ways">
      <div class="stack">
        <h3>{texts.obs}</h3>
        <ol class="steps">
          {texts.obsSteps.map((step) => (
            <li key={step}>{step}</li>
          ))}
        </ol>
      </div>
      <div class="stack">
        <div class="spread">
          <h3>{texts.ffmpeg}</h3>
          <CopyButton text={ffmpegLine(server, streamKey)} name={texts.ffmpeg} />
        </div>
        <pre tabIndex={0}>{ffmpegShown(server)}</pre>
        <p class="help">{texts.ffmpegText}</p>
      </div>
    </div>
  );
}
