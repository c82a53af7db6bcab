import { answer, api, nextCursor } from '../../api';
import { download } from '../../csv';
import { millisats, number, time } from '../../format';
import { t } from '../../i18n';
import { ledgerPage, type LedgerEntry } from '../../ledger';
import { useAction, usePages } from '../../resource';
import { useStreams } from '../../store';
import { Button, Card, Empty, ErrorNote, Loaded, Pager, Table, Time, toast, type Column } from '../../ui';

/** Entries of one page. */
const PAGE = 100;
/** Entries of one read of the file; the most that the service gives. */
const FILE_PAGE = 1_000;
/** Most reads for one file. */
const FILE_PAGES_MAX = 100;
/** Interval of reads: charges have no events. */
const ENTRIES_MS = 60_000;

/** All entries of the account, newest first. */
export function Entries() {
  const texts = t().wallet;
  const pages = usePages('ledger', (cursor) => ledgerPage(PAGE, cursor), {
    on: ['wallet.', 'account.credited', 'stream.ended'],
    every: ENTRIES_MS,
  });
  const saving = useAction(async () => {
    const { text, isCut } = await readFile();
    download('satcast-ledger.csv', text);
    if (isCut) {
      toast(texts.csvCut(FILE_PAGE * FILE_PAGES_MAX));
    }
  });
  return (
    <Card
      title={texts.ledger}
      actions={
        <Button busy={saving.busy} onClick={() => void saving.run()}>
          {texts.csv}
        </Button>
      }
    >
      <ErrorNote failure={saving.failure} />
      <Loaded of={{ ...pages, data: pages.items }} rows={6}>
        {(entries) => (entries.length === 0 ? <None /> : <Rows entries={entries} />)}
      </Loaded>
      <Pager of={pages} />
    </Card>
  );
}

function None() {
  const texts = t().wallet;
  return (
    <Empty title={texts.noEntries}>
      <p class="muted">{texts.noEntriesText}</p>
    </Empty>
  );
}

/** The whole ledger as the service writes it, page after page under one head. */
async function readFile(): Promise<{ text: string; isCut: boolean }> {
  const parts: string[] = [];
  let cursor: string | null = null;
  for (let page = 0; page < FILE_PAGES_MAX; page += 1) {
    const wanted = { format: 'csv' as const, limit: FILE_PAGE, ...(cursor === null ? {} : { cursor }) };
    const pending = api.GET('/api/wallet/ledger', { params: { query: wanted }, parseAs: 'text' });
    const text: string = await answer(pending);
    parts.push(page === 0 ? text : text.slice(text.indexOf('\n') + 1));
    cursor = nextCursor((await pending).response.headers.get('Link'));
    if (cursor === null) {
      return { text: parts.join(''), isCut: false };
    }
  }
  return { text: parts.join(''), isCut: true };
}

function Rows({ entries }: { entries: readonly LedgerEntry[] }) {
  const texts = t().wallet;
  const labels = new Map(useStreams().data?.items.map(({ id, label }) => [id, label]));
  const columns: Column<LedgerEntry>[] = [
    { title: t().ui.time, cell: ({ createdAt }) => <Time at={createdAt} /> },
    { title: texts.reason, cell: (entry) => <Reason entry={entry} /> },
    {
      title: texts.stream,
      cell: ({ streamKeyId, sessionId }) => {
        // A deleted stream has no page.
        const label = streamKeyId === null ? undefined : labels.get(streamKeyId);
        return label === undefined ? (sessionId ?? '–') : <a href={`/streams/${streamKeyId}`}>{label}</a>;
      },
    },
    { title: texts.sum, numeric: true, cell: ({ amountMsat }) => <Amount msat={amountMsat} /> },
  ];
  return <Table caption={texts.ledger} columns={columns} rows={entries} rowKey={({ id }) => id} />;
}

function Amount({ msat }: { msat: number }) {
  return <span class={msat > 0 ? 'credit' : undefined}>{msat > 0 ? `+${millisats(msat)}` : millisats(msat)}</span>;
}

/** The kind of an entry, and the thing that it is about. */
function Reason({ entry }: { entry: LedgerEntry }) {
  const texts = t().wallet;
  const { kind, destinationId, minute, hourStart, fileName } = entry;
  const kinds: Readonly<Record<string, string>> = texts.kinds;
  // The first minute of a session is number 0 in the API.
  const name = kind === 'minute' && minute !== null ? texts.minute(number(minute + 1)) : (kinds[kind] ?? kind);
  const about = [...(destinationId === null ? [] : [texts.destination(destinationId)]), ...(fileName === null ? [] : [fileName])].join(
    ' · ',
  );
  return (
    <>
      {name}
      {about !== '' && <span class="muted"> · {about}</span>}
      {hourStart !== null && (
        <span class="muted">
          {' · '}
          {texts.hour} <Time at={hourStart} show={time} />
        </span>
      )}
    </>
  );
}
