import { useState } from 'preact/hooks';
import { endedBy } from '../api';
import { t } from '../i18n';
import { useAction } from '../resource';
import { match, navigate, query } from '../router';
import { ROUTES } from '../routes';
import { logIn } from '../session';
import { Button, ErrorNote, Page, TextField } from '../ui';

/** The page to return to: a path of ours, never another site. */
function returnPath(): string {
  const back = query.peek().get('back') ?? '/';
  if (!URL.canParse(back, location.origin)) {
    return '/';
  }
  const { origin, pathname, search } = new URL(back, location.origin);
  const isOurs = origin === location.origin && ROUTES.some(({ path, isPublic }) => !isPublic && match(path, pathname));
  return isOurs ? pathname + search : '/';
}

export default function View() {
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const entering = useAction(async () => {
    endedBy.value = null;
    await logIn(name, password);
    navigate(returnPath(), { replace: true });
  });
  const submit = (event: Event): void => {
    event.preventDefault();
    void entering.run();
  };
  const texts = t().login;
  return (
    <Page title={texts.title}>
      <form class="card" onSubmit={submit}>
        <TextField label={texts.name} name="username" autocomplete="username" required focus value={name} onInput={setName} />
        <TextField
          label={texts.password}
          type="password"
          name="password"
          autocomplete="current-password"
          required
          value={password}
          onInput={setPassword}
        />
        <ErrorNote failure={entering.failure ?? endedBy.value} />
        <Button kind="main" type="submit" busy={entering.busy}>
          {texts.action}
        </Button>
      </form>
      <p class="small muted">{texts.noAccount}</p>
      <p class="small muted">{texts.firstStart}</p>
    </Page>
  );
}
