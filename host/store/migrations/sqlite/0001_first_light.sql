-- Times are Unix milliseconds, amounts millisats. `uid` is random and binds a row's sealed secrets to the row.

CREATE TABLE accounts (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT    NOT NULL UNIQUE,
    password_hash TEXT,
    operator      INTEGER NOT NULL DEFAULT 0 CHECK (operator IN (0, 1)),
    created_ms    INTEGER NOT NULL
) STRICT;

CREATE TABLE streams (
    id                   INTEGER PRIMARY KEY AUTOINCREMENT,
    uid                  TEXT    NOT NULL UNIQUE,
    account_id           INTEGER NOT NULL REFERENCES accounts (id),
    label                TEXT    NOT NULL,
    key_hash             BLOB    NOT NULL UNIQUE,
    key_sealed           BLOB    NOT NULL,
    max_sats             INTEGER CHECK (max_sats > 0),
    max_duration_minutes INTEGER CHECK (max_duration_minutes > 0),
    created_ms           INTEGER NOT NULL,
    deleted_ms           INTEGER
) STRICT;

CREATE INDEX streams_by_account ON streams (account_id, id);

CREATE TABLE destinations (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    uid           TEXT    NOT NULL UNIQUE,
    stream_id     INTEGER NOT NULL REFERENCES streams (id),
    kind          TEXT    NOT NULL,
    platform      TEXT    NOT NULL,
    enabled       INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
    config_sealed BLOB    NOT NULL,
    created_ms    INTEGER NOT NULL,
    deleted_ms    INTEGER
) STRICT;

CREATE INDEX destinations_by_stream ON destinations (stream_id, id);

CREATE TABLE api_keys (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    uid            TEXT    NOT NULL UNIQUE,
    account_id     INTEGER NOT NULL REFERENCES accounts (id),
    hash           BLOB    NOT NULL UNIQUE,
    kind           TEXT    NOT NULL CHECK (kind IN ('public', 'permanent')),
    key_sealed     BLOB,
    prefix         TEXT    NOT NULL,
    last4          TEXT    NOT NULL,
    scopes         TEXT    NOT NULL,
    destination_id INTEGER REFERENCES destinations (id),
    label          TEXT    NOT NULL,
    created_ms     INTEGER NOT NULL,
    last_used_ms   INTEGER,
    revoked_ms     INTEGER,
    CHECK ((kind = 'public') = (destination_id IS NOT NULL)),
    CHECK ((kind = 'public') = (key_sealed IS NOT NULL))
) STRICT;

CREATE INDEX api_keys_by_account ON api_keys (account_id, id);

CREATE TABLE sessions (
    id           TEXT    NOT NULL PRIMARY KEY,
    stream_id    INTEGER NOT NULL REFERENCES streams (id),
    started_ms   INTEGER NOT NULL,
    heartbeat_ms INTEGER NOT NULL,
    ended_ms     INTEGER,
    end_reason   TEXT,
    CHECK ((ended_ms IS NULL) = (end_reason IS NULL))
) STRICT;

CREATE INDEX sessions_by_stream ON sessions (stream_id, started_ms);
CREATE INDEX sessions_open ON sessions (id) WHERE ended_ms IS NULL;

-- One row per account of the ledger. Only a customer's balance is kept, guarded by its bounds; the balance of a
-- house account is always the sum of its transfers, so that no row is hot.
CREATE TABLE ledger_accounts (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT    NOT NULL UNIQUE,
    account_id   INTEGER UNIQUE REFERENCES accounts (id),
    balance_msat INTEGER,
    CHECK ((account_id IS NULL) = (balance_msat IS NULL)),
    CHECK (balance_msat BETWEEN 0 AND 2100000000000000000)
) STRICT;

INSERT INTO ledger_accounts (name) VALUES ('promotion'), ('prepaid'), ('revenue'), ('waived'), ('clearing'), ('fees');

CREATE TABLE transfers (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    debit_id    INTEGER NOT NULL REFERENCES ledger_accounts (id),
    credit_id   INTEGER NOT NULL REFERENCES ledger_accounts (id),
    amount_msat INTEGER NOT NULL CHECK (amount_msat BETWEEN 1 AND 2100000000000000000),
    kind        TEXT    NOT NULL,
    idem        TEXT    NOT NULL UNIQUE,
    session_id  TEXT,
    created_ms  INTEGER NOT NULL,
    CHECK (debit_id <> credit_id)
) STRICT;

CREATE INDEX transfers_by_debit ON transfers (debit_id, id);
CREATE INDEX transfers_by_credit ON transfers (credit_id, id);

CREATE TRIGGER transfers_are_never_changed BEFORE UPDATE ON transfers
BEGIN
    SELECT RAISE(ABORT, 'transfers are never changed; post a correction');
END;

CREATE TRIGGER transfers_are_never_deleted BEFORE DELETE ON transfers
BEGIN
    SELECT RAISE(ABORT, 'transfers are never deleted; post a correction');
END;
