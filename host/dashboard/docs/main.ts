// The API reference: Swagger UI on the document of this service, with one field for the key.

import show from 'swagger-ui';

/** Name of the header's security scheme in the document. */
const SCHEME = 'apiKeyHeader';
/** Class of the root element that Swagger UI's style takes for its dark colours. */
const DARK_CLASS = 'dark-mode';

function get<T extends Element>(selector: string): T {
  const found = document.querySelector<T>(selector);
  if (!found) {
    throw new Error(`the page has no ${selector}`);
  }
  return found;
}

const dark = matchMedia('(prefers-color-scheme: dark)');
const paint = () => document.documentElement.classList.toggle(DARK_CLASS, dark.matches);
dark.addEventListener('change', paint);
paint();

const nothing = () => () => null;
const reference = show({
  url: '/openapi.json',
  domNode: get('#reference'),
  deepLinking: true,
  // Listed at the end, closed.
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  docExpansion: 'list',
  // The key is kept in memory only.
  persistAuthorization: false,
  // The badge would send the document's address to another host.
  validatorUrl: null,
  // The field at the top replaces the dialogs for the five ways to send a key. The licence is a link to another host.
  plugins: [() => ({ wrapComponents: { authorizeBtn: nothing, authorizeOperationBtn: nothing, License: nothing } })],
  onComplete: () => (get<HTMLFormElement>('#access').dataset['ready'] = 'yes'),
});

get<HTMLFormElement>('#access').addEventListener('submit', (event) => {
  event.preventDefault();
  const key = get<HTMLInputElement>('#key').value.trim();
  if (key) {
    reference.preauthorizeApiKey(SCHEME, key);
  } else {
    reference.authActions.logout([SCHEME]);
  }
  get<HTMLOutputElement>('#access-state').value = key ? 'Requests send this key, and their Curl lines show it' : 'No key';
});
