import type { ComponentChildren } from 'preact';
import { t } from '../i18n';
import type { Pages } from '../resource';
import { Button } from './button';

export interface Column<Row> {
  title: string;
  cell: (row: Row) => ComponentChildren;
  /** Numbers stand at the right. */
  numeric?: boolean;
  /** Title for screen readers only, as for a column of buttons. */
  quiet?: boolean;
}

interface TableProps<Row> {
  /** Names the table for screen readers. */
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string | number;
}

/** Stands in a cell without a value; narrow screens leave it out. */
export const NOTHING = '–';

/** A table. On narrow screens each row becomes a block with the titles beside the values; long tables skip the layout of rows
 * that are out of sight. */
export function Table<Row>({ caption, columns, rows, rowKey }: TableProps<Row>) {
  return (
    <table class="table" role="table">
      <caption class="hidden">{caption}</caption>
      <thead role="rowgroup">
        <tr role="row">
          {columns.map(({ title, numeric, quiet }) => (
            <th key={title} scope="col" role="columnheader" class={numeric ? 'numeric' : undefined}>
              <span class={quiet ? 'hidden' : undefined}>{title}</span>
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row) => (
          <tr key={rowKey(row)} role="row">
            {columns.map(({ title, cell, numeric, quiet }) => {
              const content = cell(row);
              const kind = [numeric && 'numeric', (content === NOTHING || content === null || content === false) && 'nothing'];
              return (
                <td key={title} role="cell" class={kind.filter(Boolean).join(' ') || undefined} data-title={quiet ? '' : title}>
                  {content}
                </td>
              );
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Reads the next page of a list. */
export function Pager({ of }: { of: Pick<Pages<never>, 'hasMore' | 'isLoadingMore' | 'more'> }) {
  return of.hasMore ? (
    <div class="pager">
      <Button busy={of.isLoadingMore} onClick={() => void of.more()}>
        {t().ui.more}
      </Button>
    </div>
  ) : null;
}
