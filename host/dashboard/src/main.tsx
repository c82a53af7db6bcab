import { render } from 'preact';
import { App } from './app';
import { preferred, speak } from './i18n';
import { start as followLinks } from './router';
import { check } from './session';
import { start as showTheme } from './theme';

showTheme();
followLinks();
void check();
await speak(preferred());
const root = document.getElementById('app');
if (root) {
  render(<App />, root);
}
