-- Services that share a database on a server, and what each of them owns. Empty names belong to a service that is alone.

CREATE TABLE nodes (
    name           TEXT    NOT NULL PRIMARY KEY,
    -- the data folder that it runs on: a newer process of the same folder takes over at once
    holder         TEXT    NOT NULL,
    advertise      TEXT    NOT NULL,
    -- increases whenever the lease is taken; sessions belong to one epoch
    epoch          INTEGER NOT NULL CHECK (epoch > 0),
    -- by the clock of the database; 0 after an end in order
    lease_until_ms INTEGER NOT NULL,
    draining       INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1)),
    version        TEXT    NOT NULL,
    started_ms     INTEGER NOT NULL
) STRICT;

ALTER TABLE sessions ADD COLUMN node TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;

-- the data folder that has the file, whatever the name of its node; empty if a service that was alone recorded it
ALTER TABLE archives ADD COLUMN holder TEXT NOT NULL DEFAULT '';
