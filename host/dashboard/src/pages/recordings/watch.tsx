import { answer, api } from '../../api';
import { t } from '../../i18n';
import { toast } from '../../ui';
import { shortName, useRecording, type Recording } from './data';
import { ShareDialog } from './share';

interface Props {
  recording: Recording;
  reload: () => Promise<void>;
  onClose: () => void;
}

export function WatchDialog({ recording: listed, reload, onClose }: Props) {
  const texts = t().recordings;
  const recording = useRecording(listed);
  const { id, fileName, playbackUrl, streamKeyId } = recording;
  const change = async (wanted: boolean): Promise<void> => {
    await answer(api.PATCH('/api/archives/{id}', { params: { path: { id } }, body: { public: wanted } }));
    toast(wanted ? texts.madePublic : texts.madePrivate);
    await reload();
  };
  return (
    <ShareDialog
      title={texts.watchTitle(shortName(fileName))}
      text={texts.watchText}
      url={playbackUrl ?? ''}
      ownAddress={texts.ownAddress}
      streamKeyId={streamKeyId}
      isPublic={recording.public}
      publicText={texts.publicText}
      change={change}
      frame={texts.recording}
      onClose={onClose}
    />
  );
}
