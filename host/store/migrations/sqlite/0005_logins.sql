-- Sessions of people who logged in, and links by which accounts are made. Of tokens only hashes are kept.

CREATE TABLE logins (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id   INTEGER NOT NULL REFERENCES accounts (id),
    token_hash   BLOB    NOT NULL UNIQUE,
    client       TEXT    NOT NULL,
    created_ms   INTEGER NOT NULL,
    last_used_ms INTEGER NOT NULL,
    expires_ms   INTEGER NOT NULL
) STRICT;

CREATE INDEX logins_by_account ON logins (account_id, id);
CREATE INDEX logins_by_end ON logins (expires_ms);

CREATE TABLE invites (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    token_hash BLOB    NOT NULL UNIQUE,
    operator   INTEGER NOT NULL CHECK (operator IN (0, 1)),
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
) STRICT;
