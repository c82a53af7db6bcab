import { useState } from 'preact/hooks';
import { answer, api, once, type Schema } from '../api';
import { t } from '../i18n';
import { useAction } from '../resource';
import { account } from '../session';
import { useDrivers } from '../store';
import { Button, Confirm, Empty, ErrorNote, Figures, Loaded, Note, Page, StateBadge, Time, toast } from '../ui';

type Driver = Schema<'Driver'>;
type Action = Schema<'DriverAction'>;

export default function View() {
  const texts = t().drivers;
  const drivers = useDrivers();
  return (
    <Page title={t().nav.drivers}>
      <p class="muted">{texts.about}</p>
      <Loaded of={drivers} rows={5}>
        {(list) =>
          list.length === 0 ? (
            <Empty title={texts.none}>
              <p class="muted">{texts.noneAdvice}</p>
            </Empty>
          ) : (
            <div class="stack">
              {list.map((driver) => (
                <Entry key={driver.id} driver={driver} reload={drivers.reload} />
              ))}
            </div>
          )
        }
      </Loaded>
    </Page>
  );
}

interface EntryProps {
  driver: Driver;
  reload: () => Promise<void>;
}

function Entry({ driver, reload }: EntryProps) {
  const texts = t().drivers;
  const { id, version, file, state, isolation, error, types, setAside } = driver;
  const isOperator = account.value?.operator ?? false;
  const figures = [
    ...(isOperator && file !== null ? [[texts.file, <code>{file}</code>] as const] : []),
    [texts.version, version === '' ? '–' : version] as const,
    ...(isolation === 'none' ? [] : [[texts.isolation, texts.isolations[isolation]] as const]),
  ];
  return (
    <section class="card" aria-label={id}>
      <div class="card-head">
        <div class="row">
          <h2>{id}</h2>
          <StateBadge state={state} />
        </div>
        {isOperator && <Actions driver={driver} reload={reload} />}
      </div>
      <div class="compact">
        <Figures items={figures} />
      </div>
      <Advice driver={driver} error={error} />
      <div>
        <h3>{texts.types}</h3>
        {types.length === 0 ? (
          <p class="muted">{texts.noTypes}</p>
        ) : (
          <ul class="driver-types">
            {types.map(({ name, title }) => (
              <li key={name}>
                {title} <code class="small muted">{name}</code>
              </li>
            ))}
          </ul>
        )}
      </div>
      {setAside.length > 0 && <Quarantine accounts={setAside} isOperator={isOperator} />}
    </section>
  );
}

/** The load error or crash in the service's words, and what helps. */
function Advice({ driver, error }: { driver: Driver; error: string | null }) {
  const texts = t().drivers;
  const { id, state } = driver;
  const advice =
    state === 'missing' ? texts.missingAdvice(`${id}.so`) : state === 'refused' ? texts.refusedAdvice : state === 'failing' ? texts.failingAdvice : null;
  return error === null && advice === null ? null : (
    <Note kind={state === 'refused' || state === 'failing' ? 'bad' : 'warning'}>
      {error !== null && <p>{error}</p>}
      {advice !== null && <p class="small">{advice}</p>}
    </Note>
  );
}

function Quarantine({ accounts, isOperator }: { accounts: Driver['setAside']; isOperator: boolean }) {
  const texts = t().drivers;
  return (
    <Note kind="warning">
      <p>
        <strong>{isOperator ? texts.setAside : texts.setAsideOwn}</strong>
      </p>
      <ul class="stack">
        {accounts.map(({ accountId, reason, until }) => (
          <li key={accountId}>
            {isOperator && `${texts.account(accountId)}: `}
            {reason}
            <p class="small">
              {until === null ? (
                texts.untilEnabled
              ) : (
                <>
                  {texts.until} <Time at={until} />
                </>
              )}
            </p>
          </li>
        ))}
      </ul>
    </Note>
  );
}

function Actions({ driver: { id, state, setAside }, reload }: EntryProps) {
  const texts = t().drivers;
  const [question, ask] = useState<'disable' | 'replace' | null>(null);
  const change = async (key: string, action: Action): Promise<void> => {
    try {
      await answer(api.POST('/api/drivers', { body: { driver: id, action }, params: once(key) }));
      toast(texts.changed(id));
    } finally {
      // A driver that runs on without a refused change tells the reason.
      await reload();
    }
  };
  const enabling = useAction((key) => change(key, 'enable'));
  const isOn = state === 'loaded' || state === 'failing';
  // Ends the quarantine, too.
  const needsEnable = state !== 'loaded' || setAside.length > 0;
  return (
    <>
      <div class="row">
        {needsEnable && (
          <Button label={texts.enableNamed(id)} busy={enabling.busy} onClick={() => void enabling.run()}>
            {texts.enable}
          </Button>
        )}
        {isOn && (
          <>
            <Button label={texts.replaceNamed(id)} onClick={() => ask('replace')}>
              {texts.replace}
            </Button>
            <Button label={texts.disableNamed(id)} onClick={() => ask('disable')}>
              {texts.disable}
            </Button>
          </>
        )}
      </div>
      <ErrorNote failure={enabling.failure} />
      {question && (
        <Confirm
          title={question === 'disable' ? texts.disableTitle(id) : texts.replaceTitle(id)}
          action={texts[question]}
          danger={question === 'disable'}
          work={(key) => change(key, question)}
          onClose={() => ask(null)}
        >
          <p>{question === 'disable' ? texts.disableText : texts.replaceText}</p>
          <p class="muted">{texts.untilRestart}</p>
        </Confirm>
      )}
    </>
  );
}
