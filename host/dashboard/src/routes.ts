// The pages: their paths, and the scripts that are loaded when they are opened.

import type { ComponentType } from 'preact';
import type { Params } from './router';
import type { IconName } from './ui/icon';

export interface PageProps {
  params: Params;
}

export interface Route {
  path: string;
  load: () => Promise<{ default: ComponentType<PageProps> }>;
  /** Opens without a login session. */
  isPublic?: boolean;
}

export const ROUTES: readonly Route[] = [
  { path: '/login', load: () => import('./pages/login'), isPublic: true },
  { path: '/setup', load: () => import('./pages/setup'), isPublic: true },
  { path: '/', load: () => import('./pages/streams') },
  { path: '/streams/:id', load: () => import('./pages/stream') },
  { path: '/webhooks', load: () => import('./pages/webhooks') },
  { path: '/webhooks/:id', load: () => import('./pages/webhook') },
  { path: '/keys', load: () => import('./pages/keys') },
  { path: '/recordings', load: () => import('./pages/recordings') },
  { path: '/clips', load: () => import('./pages/clips') },
  { path: '/analytics', load: () => import('./pages/analytics') },
  { path: '/wallet', load: () => import('./pages/wallet') },
  { path: '/drivers', load: () => import('./pages/drivers') },
  { path: '/accounts', load: () => import('./pages/accounts') },
  { path: '/settings', load: () => import('./pages/settings') },
];

export type NavName =
  'streams' | 'recordings' | 'clips' | 'analytics' | 'wallet' | 'webhooks' | 'keys' | 'drivers' | 'accounts' | 'settings';

/** The menu. */
export const NAV: readonly { path: string; name: NavName & IconName; isForOperators?: boolean }[] = [
  { path: '/', name: 'streams' },
  { path: '/recordings', name: 'recordings' },
  { path: '/clips', name: 'clips' },
  { path: '/analytics', name: 'analytics' },
  { path: '/wallet', name: 'wallet' },
  { path: '/webhooks', name: 'webhooks' },
  { path: '/keys', name: 'keys' },
  { path: '/drivers', name: 'drivers' },
  { path: '/accounts', name: 'accounts', isForOperators: true },
  { path: '/settings', name: 'settings' },
];
