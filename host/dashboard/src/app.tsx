// The shell: menu, banners, and the page of the address.

import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { reachable } from './api';
import { feedState } from './feed';
import { t } from './i18n';
import { match, navigate, path, type Params } from './router';
import { NAV, ROUTES, type PageProps, type Route } from './routes';
import { account, sessionState } from './session';
import { Button, Empty, Icon, LinkButton, Note, Page, Skeleton, Toasts } from './ui';

interface Found {
  route: Route;
  params: Params;
}

function find(path: string): Found | null {
  for (const route of ROUTES) {
    const params = match(route.path, path);
    if (params) {
      return { route, params };
    }
  }
  return null;
}

export function App() {
  const found = find(path.value);
  const state = sessionState.value;
  // An address without a page needs no login.
  const isPublic = found ? (found.route.isPublic ?? false) : state === 'out';
  useEffect(() => {
    if (state === 'out' && !isPublic) {
      const back = path.peek();
      navigate(back === '/' ? '/login' : `/login?back=${encodeURIComponent(back)}`, { replace: true });
    }
  }, [state, isPublic]);
  if (isPublic) {
    return (
      <main class="entrance" id="main">
        <p class="brand">Satcast</p>
        {found ? <Opened key={path.value} {...found} /> : <Unknown />}
        <Toasts />
      </main>
    );
  }
  return state === 'in' ? (
    <div class="shell">
      <a class="skip" href="#main">
        {t().shell.skip}
      </a>
      <Menu />
      <main id="main" tabIndex={-1}>
        <Banner />
        {found ? <Opened key={path.value} {...found} /> : <Unknown />}
      </main>
      <Toasts />
    </div>
  ) : (
    <main class="entrance" id="main">
      <Skeleton />
    </main>
  );
}

/** Loads the script of the page. After an update of the service the old script is gone: the person loads the pages again. */
function Opened({ route, params }: Found) {
  const [loaded, setLoaded] = useState<{ view: ComponentType<PageProps> } | 'failed' | null>(null);
  useEffect(() => {
    let isGone = false;
    route.load().then(
      (module) => !isGone && setLoaded({ view: module.default }),
      () => !isGone && setLoaded('failed'),
    );
    return () => {
      isGone = true;
    };
  }, [route]);
  if (loaded === 'failed') {
    return (
      <Page title={t().shell.notLoaded}>
        <Note kind="bad">
          <p>{t().shell.notLoadedAdvice}</p>
          <Button onClick={() => location.reload()}>{t().shell.reload}</Button>
        </Note>
      </Page>
    );
  }
  return loaded ? <loaded.view params={params} /> : <Skeleton rows={5} />;
}

function Unknown() {
  return (
    <Page title={t().shell.unknown}>
      <Empty title={t().shell.unknownAdvice}>
        <LinkButton href="/">{t().nav.streams}</LinkButton>
      </Empty>
    </Page>
  );
}

function Banner() {
  const texts = t().shell;
  const text = !reachable.value ? texts.unreachable : feedState.value === 'polling' ? texts.polling : null;
  return (
    <div role="status">
      {text && (
        <p class="banner">
          <Icon name="offline" /> {text}
        </p>
      )}
    </div>
  );
}

function Menu() {
  const [isOpen, open] = useState(false);
  const here = path.value;
  useEffect(() => open(false), [here]);
  const isCurrent = (target: string): boolean =>
    target === '/' ? here === '/' || here.startsWith('/streams') : here.startsWith(target);
  const items = NAV.filter(({ isForOperators }) => !isForOperators || account.value?.operator);
  return (
    <header class="menu" data-open={isOpen}>
      <div class="menu-head">
        <a class="brand" href="/">
          Satcast
        </a>
        <Button kind="quiet" icon="menu" expanded={isOpen} onClick={() => open(!isOpen)}>
          {t().shell.menu}
        </Button>
      </div>
      <nav aria-label={t().shell.menu}>
        <ul>
          {items.map(({ path, name }) => (
            <li key={path}>
              <a href={path} aria-current={isCurrent(path) ? 'page' : undefined}>
                <Icon name={name} />
                {t().nav[name]}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      {account.value && <p class="menu-account small muted">{account.value.name}</p>}
    </header>
  );
}
