import { useState } from 'preact/hooks';
import { answer, api } from '../../api';
import { bytes, codec, dateTime, number } from '../../format';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import type { StreamDetail } from '../../store';
import { Button, Card, Confirm, Elapsed, Field, Figures, FormDialog, Note, TextField, toast } from '../../ui';

/** Seconds for which a slate plays when nothing is entered, and the most. */
const SECONDS = '300';
const SECONDS_MAX = 3_600;

interface Props {
  stream: StreamDetail;
  reload: () => Promise<void>;
}

type Known = NonNullable<StreamDetail['slate']>;

/** The clip that plays while the encoder is away. */
export function Slate({ stream, reload }: Props) {
  const texts = t().slate;
  const [question, ask] = useState<'upload' | 'delete' | null>(null);
  const close = (): void => ask(null);
  const { id, slate, slateSince } = stream;
  const remove = async (): Promise<void> => {
    await answer(api.DELETE('/api/streams/{id}/slate', { params: { path: { id } } }));
    toast(texts.deleted);
    await reload();
  };
  return (
    <Card
      title={texts.title}
      actions={
        <>
          {slate && <Button onClick={() => ask('delete')}>{texts.delete}</Button>}
          <Button onClick={() => ask('upload')}>{slate ? texts.replace : texts.upload}</Button>
        </>
      }
    >
      {slateSince !== null && (
        <Note kind="warning">
          {texts.onAir} <Elapsed since={slateSince} />
        </Note>
      )}
      {slate ? <Figures items={figures(slate)} /> : <p>{texts.none}</p>}
      {question === 'upload' && <Upload stream={stream} reload={reload} onClose={close} />}
      {question === 'delete' && (
        <Confirm title={texts.deleteTitle} action={texts.delete} work={remove} onClose={close}>
          <p>{texts.deleteText}</p>
        </Confirm>
      )}
    </Card>
  );
}

function figures(slate: Known): (readonly [string, string])[] {
  const texts = t().slate;
  const size = `${slate.width}×${slate.height}`;
  const video = [codec(slate.videoCodec), size, `${number(slate.frameRate, 2)} fps`];
  const audio = slate.audioCodec && [codec(slate.audioCodec), `${number((slate.sampleRate ?? 0) / 1000, 1)} kHz`];
  return [
    [texts.length, texts.seconds(number(slate.seconds, 1))],
    [t().stream.video, video.join(' · ')],
    [t().stream.audio, audio ? audio.join(' · ') : t().stream.noVideo],
    [texts.file, bytes(slate.bytes)],
    [texts.plays, texts.seconds(number(slate.maxSeconds))],
    [texts.uploaded, dateTime(slate.uploadedAt)],
  ];
}

function Upload({ stream, reload, onClose }: Props & { onClose: () => void }) {
  const texts = t().slate;
  const [file, setFile] = useState<File | null>(null);
  const [seconds, setSeconds] = useState(String(stream.slate?.maxSeconds ?? SECONDS));
  const sending = useAction(async () => {
    if (!file) {
      return;
    }
    await answer(
      api.PUT('/api/streams/{id}/slate', {
        params: { path: { id: stream.id }, query: { maxSeconds: Number(seconds) } },
        // The types of the document have text here. The file goes as it is.
        body: '',
        bodySerializer: () => file,
        headers: { 'Content-Type': 'video/mp4' },
      }),
    );
    toast(texts.set);
    await reload();
    onClose();
  });
  return (
    <FormDialog
      title={texts.uploadTitle}
      action={texts.upload}
      busy={sending.busy}
      failure={sending.failure}
      onSubmit={() => void sending.run()}
      onClose={onClose}
    >
      <Field label={texts.file} help={texts.fileHelp}>
        {(bound) => (
          <input
            {...bound}
            type="file"
            accept="video/mp4"
            required
            onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)}
          />
        )}
      </Field>
      <TextField
        label={texts.plays}
        help={texts.playsHelp}
        type="number"
        required
        min={1}
        max={SECONDS_MAX}
        value={seconds}
        onInput={setSeconds}
      />
    </FormDialog>
  );
}
