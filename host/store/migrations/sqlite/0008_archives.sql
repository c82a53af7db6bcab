-- Recordings in the cloud archive, as the driver that makes them last told: the driver's own journal is the truth.

CREATE TABLE archives (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id     INTEGER NOT NULL REFERENCES accounts (id),
    destination_id INTEGER NOT NULL REFERENCES destinations (id),
    session_id     TEXT    NOT NULL REFERENCES sessions (id),
    -- The object's key below the prefix of its store.
    file_name      TEXT    NOT NULL,
    state          TEXT    NOT NULL CHECK (state IN ('recording', 'uploading', 'ready', 'failed')),
    size_bytes     INTEGER NOT NULL CHECK (size_bytes BETWEEN 0 AND 9007199254740991),
    uploaded_bytes INTEGER NOT NULL CHECK (uploaded_bytes BETWEEN 0 AND 9007199254740991),
    duration_ms    INTEGER NOT NULL CHECK (duration_ms BETWEEN 0 AND 9007199254740991),
    error          TEXT,
    url            TEXT,
    started_ms     INTEGER NOT NULL,
    changed_ms     INTEGER NOT NULL,
    CHECK (uploaded_bytes <= size_bytes),
    CHECK ((state = 'failed') = (error IS NOT NULL)),
    UNIQUE (account_id, file_name)
) STRICT;

CREATE INDEX archives_by_account ON archives (account_id, id);
