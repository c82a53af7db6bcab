-- Requests that carried an Idempotency-Key. Neither the key nor the body is kept, only their hashes; the answer may hold
-- a secret and is sealed. A row without an answer is a request that is being worked on.

CREATE TABLE idempotency (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    uid           TEXT    NOT NULL UNIQUE,
    account_id    INTEGER NOT NULL REFERENCES accounts (id),
    request_hash  BLOB    NOT NULL,
    body_hash     BLOB    NOT NULL,
    status        INTEGER,
    answer_sealed BLOB,
    created_ms    INTEGER NOT NULL,
    CHECK ((status IS NULL) = (answer_sealed IS NULL)),
    UNIQUE (account_id, request_hash)
) STRICT;

CREATE INDEX idempotency_by_age ON idempotency (created_ms);
