import { useState } from 'preact/hooks';
import { answer, api, asFailure, once, type Schema } from '../api';
import { choose as speak, language, LANGUAGES, t, type Language } from '../i18n';
import { useAction, useResource } from '../resource';
import { navigate } from '../router';
import { logOut } from '../session';
import { useConfig } from '../store';
import { choose as show, theme, THEMES } from '../theme';
import { Button, Card, Choice, Confirm, ErrorNote, Loaded, Page, Table, TextField, Time, toast, type Column } from '../ui';

type LoginSession = Schema<'LoginSession'>;

export default function View() {
  const texts = t().settings;
  const leaving = useAction(logOut);
  return (
    <Page
      title={t().nav.settings}
      actions={
        <Button busy={leaving.busy} onClick={() => void leaving.run()}>
          {texts.logOut}
        </Button>
      }
    >
      <ErrorNote failure={leaving.failure} />
      <Appearance />
      <Password />
      <Sessions />
      <About />
    </Page>
  );
}

function Appearance() {
  const texts = t().settings;
  const languages = Object.entries(LANGUAGES) as [Language, string][];
  return (
    <Card title={texts.appearance}>
      <div class="row spaced">
        <div class="field">
          {/* The group has the same name for screen readers. */}
          <span aria-hidden="true">{texts.theme}</span>
          <Choice
            label={texts.theme}
            value={theme.value}
            options={THEMES.map((name) => [name, texts.themes[name]] as const)}
            onChange={show}
          />
        </div>
        <div class="field">
          <span aria-hidden="true">{texts.language}</span>
          <Choice label={texts.language} value={language.value} options={languages} onChange={(chosen) => void speak(chosen)} />
        </div>
      </div>
    </Card>
  );
}

function About() {
  const texts = t().settings;
  const { data } = useConfig();
  return (
    <Card title={texts.about}>
      <div class="row spaced">
        {data && <span>{texts.version(data.version)}</span>}
        <a href="/manual/">{texts.manual}</a>
        <a href="/docs">{texts.reference}</a>
        <a href="/licenses">{texts.licences}</a>
      </div>
    </Card>
  );
}

function Password() {
  const texts = t().settings;
  const [current, setCurrent] = useState('');
  const [next, setNext] = useState('');
  const changing = useAction(async (key) => {
    const body = { currentPassword: current, newPassword: next };
    await answer(api.POST('/api/auth/password', { body, params: once(key) }));
    setCurrent('');
    setNext('');
    toast(texts.passwordChanged);
  });
  const submit = (event: Event): void => {
    event.preventDefault();
    void changing.run();
  };
  return (
    <Card title={texts.password}>
      <form class="stack narrow" onSubmit={submit}>
        <TextField
          label={texts.currentPassword}
          type="password"
          autocomplete="current-password"
          required
          value={current}
          onInput={setCurrent}
        />
        <TextField
          label={texts.newPassword}
          type="password"
          autocomplete="new-password"
          required
          value={next}
          onInput={setNext}
        />
        <ErrorNote failure={changing.failure} />
        <div>
          <Button type="submit" busy={changing.busy}>
            {texts.changePassword}
          </Button>
        </div>
      </form>
    </Card>
  );
}

/** Ends a session, which may have ended by itself. */
async function end(id: number): Promise<void> {
  try {
    await answer(api.DELETE('/api/auth/sessions/{id}', { params: { path: { id } } }));
  } catch (error) {
    if (asFailure(error).status !== 404) {
      throw error;
    }
  }
}

function Sessions() {
  const texts = t().settings;
  const sessions = useResource('sessions', () => answer(api.GET('/api/auth/sessions')), { on: ['login.'] });
  const [isAsking, ask] = useState(false);
  const ending = useAction(async (_: string, session: LoginSession) => {
    await end(session.id);
    toast(texts.ended(session.client));
    await sessions.reload();
  });
  const everywhere = async (key: string): Promise<void> => {
    for (const { id } of (sessions.data ?? []).filter(({ current }) => !current)) {
      await end(id);
    }
    await logOut(key);
    navigate('/login', { replace: true });
  };
  const columns: Column<LoginSession>[] = [
    { title: texts.client, cell: ({ client, current }) => (current ? `${client} · ${texts.thisBrowser}` : client) },
    { title: texts.begun, cell: ({ createdAt }) => <Time at={createdAt} /> },
    { title: texts.lastUsed, cell: ({ lastUsedAt }) => <Time at={lastUsedAt} /> },
    {
      title: texts.actions,
      quiet: true,
      cell: (session) =>
        !session.current && (
          <Button label={texts.endNamed(session.client)} busy={ending.busy} onClick={() => void ending.run(session)}>
            {texts.end}
          </Button>
        ),
    },
  ];
  return (
    <Card
      title={texts.sessions}
      actions={
        <Button kind="danger" onClick={() => ask(true)}>
          {texts.everywhere}
        </Button>
      }
    >
      <ErrorNote failure={ending.failure} />
      <Loaded of={sessions}>
        {(rows) => <Table caption={texts.sessions} columns={columns} rows={rows} rowKey={({ id }) => id} />}
      </Loaded>
      {isAsking && (
        <Confirm title={texts.everywhereTitle} action={texts.everywhere} work={everywhere} onClose={() => ask(false)}>
          <p>{texts.everywhereText}</p>
        </Confirm>
      )}
    </Card>
  );
}
