-- Clips: a part of a stream as a file of its own, kept where its recordings are.

CREATE TABLE clips (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id     INTEGER NOT NULL,
    stream_id      INTEGER NOT NULL,
    session_id     TEXT    NOT NULL REFERENCES sessions (id),
    -- the destination for which it is kept
    destination_id INTEGER NOT NULL,
    -- who keeps the file, and the data folder in which it is made
    driver         TEXT    NOT NULL,
    holder         TEXT    NOT NULL,
    file_name      TEXT    NOT NULL,
    title          TEXT    NOT NULL,
    state          TEXT    NOT NULL CHECK (state IN ('making', 'ready', 'failed')),
    error          TEXT,
    public         INTEGER NOT NULL DEFAULT 0 CHECK (public IN (0, 1)),
    -- what it costs, and what was charged when it was ready
    price_msat     INTEGER NOT NULL CHECK (price_msat >= 0),
    charged_msat   INTEGER NOT NULL DEFAULT 0 CHECK (charged_msat >= 0),
    created_ms     INTEGER NOT NULL,
    deleted_ms     INTEGER,
    CHECK ((state = 'failed') = (error IS NOT NULL)),
    UNIQUE (account_id, file_name)
) STRICT;

CREATE INDEX clips_by_account ON clips (account_id, id);
CREATE INDEX clips_in_the_making ON clips (driver, id) WHERE state = 'making';

-- the clip that the file is
ALTER TABLE archives ADD COLUMN clip_id INTEGER;
CREATE INDEX archives_by_clip ON archives (clip_id) WHERE clip_id IS NOT NULL;
