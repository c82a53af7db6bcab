-- What each destination did in each session: the rows of the stream history. They stay when the destination is deleted.

CREATE TABLE session_destinations (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id     TEXT    NOT NULL REFERENCES sessions (id),
    destination_id INTEGER NOT NULL REFERENCES destinations (id),
    account_id     INTEGER NOT NULL REFERENCES accounts (id),
    stream_id      INTEGER NOT NULL REFERENCES streams (id),
    platform       TEXT    NOT NULL,
    started_ms     INTEGER NOT NULL,
    -- null while it takes part in a running session
    ended_ms       INTEGER,
    cost_msat      INTEGER NOT NULL DEFAULT 0 CHECK (cost_msat BETWEEN 0 AND 2100000000000000000),
    UNIQUE (session_id, destination_id)
) STRICT;

CREATE INDEX session_destinations_by_account ON session_destinations (account_id, started_ms, id);

CREATE INDEX sessions_by_time ON sessions (started_ms);

CREATE INDEX transfers_by_session ON transfers (session_id) WHERE session_id IS NOT NULL;
