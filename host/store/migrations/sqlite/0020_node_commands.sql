-- What one node asks the owner of a live session to do. A row is deleted when it is done.

CREATE TABLE node_commands (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    -- the owner
    node       TEXT    NOT NULL,
    session_id TEXT    NOT NULL REFERENCES sessions (id),
    -- why the session is to end; null when the stream and its destinations are to be read again
    end_reason TEXT,
    created_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX node_commands_by_node ON node_commands (node, id);
