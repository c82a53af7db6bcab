-- Recordings that viewers with a public key may watch. Recordings of one session and destination play as one.

ALTER TABLE archives ADD COLUMN is_public INTEGER NOT NULL DEFAULT 0 CHECK (is_public IN (0, 1));

CREATE INDEX archives_by_session ON archives (session_id, destination_id);
