import { useState } from 'preact/hooks';
import { t } from '../i18n';
import { useAction } from '../resource';
import { navigate, query } from '../router';
import { setUp } from '../session';
import { Button, ErrorNote, Note, Page, TextField } from '../ui';

/** The service asks for this length at least. */
const PASSWORD_CHARS_MIN = 8;
/** Longest account name. */
const NAME_CHARS_MAX = 128;

/** Codes of a link that was used, has expired or is wrong, and of a missing one. */
const LINK_CODES = ['not_found', 'registration_closed'];

export default function View() {
  // The fragment of an address is not sent to any server.
  const [token] = useState(() => location.hash.slice(1));
  // A login link names the account that it belongs to.
  const [owner] = useState(() => query.peek().get('account')?.slice(0, NAME_CHARS_MAX) ?? null);
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const making = useAction(async () => {
    await setUp(owner === null ? name : null, password, token);
    navigate('/', { replace: true });
  });
  const submit = (event: Event): void => {
    event.preventDefault();
    void making.run();
  };
  const texts = t().setup;
  const isLinkRefused = LINK_CODES.includes(making.failure?.code ?? '');
  return (
    <Page title={owner === null ? texts.title : texts.passwordTitle}>
      <form class="card" onSubmit={submit}>
        {token === '' && (
          <Note kind="warning">
            <p>{texts.noLink}</p>
            <p>{t().login.firstStart}</p>
          </Note>
        )}
        <p>{owner === null ? texts.about : texts.passwordAbout(owner)}</p>
        {owner === null && (
          <TextField
            label={t().login.name}
            help={texts.nameHelp}
            name="username"
            autocomplete="username"
            required
            focus
            value={name}
            onInput={setName}
          />
        )}
        <TextField
          label={t().login.password}
          help={texts.passwordHelp(PASSWORD_CHARS_MIN)}
          type="password"
          name="password"
          autocomplete="new-password"
          required
          value={password}
          onInput={setPassword}
        />
        <ErrorNote failure={making.failure} />
        {isLinkRefused && (
          <Note>
            <p>{texts.otherLink}</p>
            {owner === null && <p>{texts.firstLink}</p>}
          </Note>
        )}
        <Button kind="main" type="submit" busy={making.busy}>
          {owner === null ? texts.action : texts.passwordAction}
        </Button>
      </form>
      <p class="small">
        <a href="/login">{texts.haveAccount}</a>
      </p>
    </Page>
  );
}
