// CSV files that are made in the browser.

export type Cell = string | number | null;

/** Lines with CRLF. Text that a table program could take for a formula gets an apostrophe before it. */
export function csvOf(head: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return [head, ...rows].map((row) => `${row.map(cellOf).join(',')}\r\n`).join('');
}

function cellOf(cell: Cell): string {
  if (typeof cell !== 'string') {
    return cell === null ? '' : String(cell);
  }
  // Some table programs begin a cell at a semicolon too.
  const safe = cell.replace(/(^|[;\t\r\n])(?=[=+\-@\t\r])/g, "$1'");
  return /[",;\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Offers `text` as a file. */
export function download(name: string, text: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
