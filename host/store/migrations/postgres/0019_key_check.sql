-- A value that is derived from the key of the stored secrets, written at the first start. It does not reveal the key. Every
-- service on this database must have the same key.

CREATE TABLE key_check (
    id    BIGINT PRIMARY KEY CHECK (id = 1),
    value BYTEA  NOT NULL
);
