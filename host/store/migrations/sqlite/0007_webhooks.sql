-- Webhooks, and the outbox of what they are told. An event is written in the transaction of its cause, with one delivery for
-- each webhook that wants it; a worker sends deliveries later and notes each attempt.

-- Bytes that viewers of the stream had got when a session began, so that its own can be told at its end.
ALTER TABLE sessions ADD COLUMN bytes_before INTEGER NOT NULL DEFAULT 0 CHECK (bytes_before >= 0);

CREATE TABLE webhooks (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    uid                 TEXT    NOT NULL UNIQUE,
    account_id          INTEGER NOT NULL REFERENCES accounts (id),
    -- null: all streams of the account
    stream_id           INTEGER REFERENCES streams (id),
    -- path and query may hold a secret
    url_sealed          BLOB    NOT NULL,
    -- of the url, in clear: one slow host must not keep others waiting
    host                TEXT    NOT NULL,
    -- names with commas between
    events              TEXT    NOT NULL,
    secret_sealed       BLOB,
    -- signs too until its time is over
    old_secret_sealed   BLOB,
    old_secret_until_ms INTEGER,
    enabled             INTEGER NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
    disabled_reason     TEXT,
    -- the first failure since the last success, and how many there were since
    failing_since_ms    INTEGER,
    failures            INTEGER NOT NULL DEFAULT 0,
    last_ms             INTEGER,
    last_status         INTEGER,
    last_ok             INTEGER CHECK (last_ok IN (0, 1)),
    created_ms          INTEGER NOT NULL,
    CHECK ((old_secret_sealed IS NULL) = (old_secret_until_ms IS NULL)),
    CHECK ((last_ms IS NULL) = (last_ok IS NULL)),
    CHECK (enabled = 0 OR disabled_reason IS NULL)
) STRICT;

CREATE INDEX webhooks_by_account ON webhooks (account_id, id);

CREATE TABLE webhook_events (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    -- the id that receivers see, the same in every attempt
    uid        TEXT    NOT NULL UNIQUE,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    type       TEXT    NOT NULL,
    -- the exact bytes that are signed and sent
    body       BLOB    NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX webhook_events_by_age ON webhook_events (created_ms);

CREATE TABLE webhook_deliveries (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id         INTEGER NOT NULL REFERENCES webhook_events (id),
    webhook_id       INTEGER NOT NULL REFERENCES webhooks (id),
    state            TEXT    NOT NULL CHECK (state IN ('pending', 'delivered', 'failed', 'cancelled')),
    -- attempts of the schedule that were made
    tries            INTEGER NOT NULL DEFAULT 0,
    -- when the next attempt is due
    due_ms           INTEGER NOT NULL,
    -- who is sending it, and until when nobody else may
    claim            TEXT,
    claimed_until_ms INTEGER,
    created_ms       INTEGER NOT NULL,
    CHECK ((claim IS NULL) = (claimed_until_ms IS NULL)),
    CHECK (state = 'pending' OR claim IS NULL)
) STRICT;

CREATE INDEX webhook_deliveries_by_webhook ON webhook_deliveries (webhook_id, id);
CREATE INDEX webhook_deliveries_by_event ON webhook_deliveries (event_id);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_ms) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_claimed ON webhook_deliveries (webhook_id) WHERE claim IS NOT NULL;

CREATE TABLE webhook_attempts (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    delivery_id INTEGER NOT NULL REFERENCES webhook_deliveries (id),
    at_ms       INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    -- null when there was no answer
    status      INTEGER,
    ok          INTEGER NOT NULL CHECK (ok IN (0, 1)),
    -- the beginning of the answer's body
    answer      TEXT    NOT NULL,
    -- null when nothing was wrong
    error       TEXT
) STRICT;

CREATE INDEX webhook_attempts_by_delivery ON webhook_attempts (delivery_id, id);
