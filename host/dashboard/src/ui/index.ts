// The parts of pages.

export { Button, LinkButton } from './button';
export { Chart, Sparkline, type Series } from './chart';
export { CopyButton, CopyField } from './copy';
export { Confirm, Dialog, DialogActions, FormDialog } from './dialog';
export { AreaField, CheckField, Choice, Field, SelectField, TextField } from './field';
export { Frame } from './frame';
export { Icon, type IconName } from './icon';
export { AsOf, Empty, ErrorNote, explain, Loaded, Note, ReadNote, Skeleton } from './note';
export { Card, Figures, Page } from './page';
export { Qr } from './qr';
export { SchemaFields } from './schema_form';
export { Badge, StateBadge, type Tone } from './state';
export { NOTHING, Pager, Table, type Column } from './table';
export { Countdown, Elapsed, Time, useNow } from './time';
export { toast, Toasts } from './toast';
