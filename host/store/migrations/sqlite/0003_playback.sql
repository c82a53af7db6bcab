-- Playback: the path below which viewers find a self-hosted destination, and what was sent to them.

-- Random and permanent; null for types that have no playback.
ALTER TABLE destinations ADD COLUMN playback_path TEXT;

CREATE UNIQUE INDEX destinations_by_playback_path ON destinations (playback_path) WHERE playback_path IS NOT NULL;

-- Bytes sent to viewers by destination and UTC clock hour. Rows are added to and never deleted; those of deleted
-- destinations go on counting for their account.
CREATE TABLE bandwidth (
    destination_id INTEGER NOT NULL REFERENCES destinations (id),
    hour_ms        INTEGER NOT NULL CHECK (hour_ms % 3600000 = 0),
    account_id     INTEGER NOT NULL REFERENCES accounts (id),
    bytes          INTEGER NOT NULL CHECK (bytes BETWEEN 0 AND 9007199254740991),
    PRIMARY KEY (destination_id, hour_ms)
) STRICT;

CREATE INDEX bandwidth_by_account ON bandwidth (account_id, hour_ms);
