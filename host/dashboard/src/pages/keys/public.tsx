import { answer, api, once } from '../../api';
import { t } from '../../i18n';
import { useAction } from '../../resource';
import { useKeys } from '../../store';
import { Button, ErrorNote, toast } from '../../ui';

/** Makes the first public key of a destination that viewers can play. */
export function NewPublicKey({ destinationId }: { destinationId: number }) {
  const texts = t().playback;
  const { reload } = useKeys();
  const creating = useAction(async (attempt: string) => {
    const body = { type: 'public', destinationId, label: texts.label } as const;
    await answer(api.POST('/api/keys', { body, params: once(attempt) }));
    toast(texts.created);
    await reload();
  });
  return (
    <div class="stack">
      <p>{texts.noKey}</p>
      <div>
        <Button kind="main" busy={creating.busy} onClick={() => void creating.run()}>
          {texts.create}
        </Button>
      </div>
      <ErrorNote failure={creating.failure} />
    </div>
  );
}
