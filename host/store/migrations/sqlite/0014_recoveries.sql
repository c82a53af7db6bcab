-- Who keeps a recording and how far its retries went, and the retries that somebody paid for.

ALTER TABLE archives ADD COLUMN driver TEXT NOT NULL DEFAULT 'archive';
ALTER TABLE archives ADD COLUMN error_class TEXT;
-- Retries that the driver took up, and whether the store opened the upload of the last one.
ALTER TABLE archives ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0);
ALTER TABLE archives ADD COLUMN attempt_opened INTEGER NOT NULL DEFAULT 0 CHECK (attempt_opened IN (0, 1));
-- A deleted recording is not shown; what was paid for it stays.
ALTER TABLE archives ADD COLUMN deleted_ms INTEGER;

CREATE INDEX archives_by_driver ON archives (driver, id);

-- A row is written, with its charge, before the driver is asked. Rows are never deleted.
CREATE TABLE archive_recoveries (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    archive_id     INTEGER NOT NULL REFERENCES archives (id),
    attempt        INTEGER NOT NULL CHECK (attempt >= 1),
    -- What the driver had counted before: a higher count is about this one.
    driver_attempt INTEGER NOT NULL CHECK (driver_attempt >= 0),
    state          TEXT    NOT NULL CHECK (state IN ('asked', 'opened', 'ended', 'refunded')),
    charged_msat   INTEGER NOT NULL CHECK (charged_msat BETWEEN 0 AND 2100000000000000000),
    created_ms     INTEGER NOT NULL,
    changed_ms     INTEGER NOT NULL,
    UNIQUE (archive_id, attempt)
) STRICT;

-- One at a time for each recording.
CREATE UNIQUE INDEX archive_recoveries_running ON archive_recoveries (archive_id) WHERE state IN ('asked', 'opened');
