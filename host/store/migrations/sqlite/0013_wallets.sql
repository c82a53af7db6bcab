-- Wallets: those of customers that refill credit, and the invoices of the operator's wallet, by which credit is bought.

INSERT INTO ledger_accounts (name) VALUES ('lightning');

-- One for each account. It is gone when its owner disconnects it; invoices stay.
CREATE TABLE wallet_connections (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    uid             TEXT    NOT NULL UNIQUE,
    account_id      INTEGER NOT NULL UNIQUE REFERENCES accounts (id),
    kind            TEXT    NOT NULL,
    -- the address may be the secret
    url_sealed      BLOB    NOT NULL,
    secret_sealed   BLOB    NOT NULL,
    -- refill below this, by so much, at most so much in a UTC day
    threshold_msat  INTEGER NOT NULL CHECK (threshold_msat BETWEEN 0 AND 2100000000000000000),
    amount_msat     INTEGER NOT NULL CHECK (amount_msat BETWEEN 1 AND 2100000000000000000),
    daily_cap_msat  INTEGER NOT NULL CHECK (daily_cap_msat BETWEEN 0 AND 2100000000000000000),
    -- refills that failed since the last one that did not, and when the next may begin
    failures        INTEGER NOT NULL DEFAULT 0,
    retry_ms        INTEGER NOT NULL DEFAULT 0,
    last_error_code TEXT,
    last_error      TEXT,
    last_refill_ms  INTEGER,
    created_ms      INTEGER NOT NULL,
    changed_ms      INTEGER NOT NULL,
    CHECK ((last_error_code IS NULL) = (last_error IS NULL))
) STRICT;

-- A row is written before any wallet is asked, and credited once at most. Rows are never deleted.
CREATE TABLE wallet_invoices (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id    INTEGER NOT NULL REFERENCES accounts (id),
    purpose       TEXT    NOT NULL CHECK (purpose IN ('topup', 'refill')),
    -- of a refill: through which connection it is paid, which may be gone
    connection_id INTEGER,
    state         TEXT    NOT NULL CHECK (state IN ('created', 'open', 'paying', 'settled', 'expired', 'failed')),
    amount_msat   INTEGER NOT NULL CHECK (amount_msat BETWEEN 1 AND 2100000000000000000),
    fee_max_msat  INTEGER NOT NULL CHECK (fee_max_msat >= 0),
    payment_hash  TEXT    UNIQUE,
    bolt11        TEXT,
    expires_ms    INTEGER,
    credited_msat INTEGER CHECK (credited_msat BETWEEN 1 AND 2100000000000000000),
    -- when the receiving wallet is asked next; null when never again
    due_ms        INTEGER,
    created_ms    INTEGER NOT NULL,
    settled_ms    INTEGER,
    CHECK ((payment_hash IS NULL) = (bolt11 IS NULL)),
    CHECK ((payment_hash IS NULL) = (expires_ms IS NULL)),
    CHECK ((state = 'settled') = (credited_msat IS NOT NULL)),
    CHECK ((state = 'settled') = (settled_ms IS NOT NULL)),
    CHECK (state NOT IN ('open', 'paying', 'settled', 'expired') OR payment_hash IS NOT NULL)
) STRICT;

CREATE INDEX wallet_invoices_by_account ON wallet_invoices (account_id, purpose, created_ms);
CREATE INDEX wallet_invoices_due ON wallet_invoices (due_ms) WHERE due_ms IS NOT NULL;
-- One refill of an account at a time, whoever begins it.
CREATE UNIQUE INDEX wallet_invoices_one_refill ON wallet_invoices (account_id)
    WHERE purpose = 'refill' AND state IN ('created', 'open', 'paying');
