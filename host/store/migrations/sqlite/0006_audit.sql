-- Who did what. A row is written with the change it tells of, in one transaction, and stays for ever. Neither keys nor
-- passwords nor configurations stand in it.

CREATE TABLE audit (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    -- whose log it is in; null for what belongs to no account, such as a link or a login under an unknown name
    account_id  INTEGER REFERENCES accounts (id),
    actor_kind  TEXT    NOT NULL,
    actor_id    INTEGER,
    action      TEXT    NOT NULL,
    target_kind TEXT    NOT NULL,
    target_id   INTEGER,
    -- a JSON object
    detail      TEXT    NOT NULL,
    address     TEXT,
    created_ms  INTEGER NOT NULL
) STRICT;

CREATE INDEX audit_by_account ON audit (account_id, id);
CREATE INDEX audit_failed_logins ON audit (account_id, created_ms) WHERE action = 'login.failed';

CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is never changed');
END;

CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is never deleted from');
END;
