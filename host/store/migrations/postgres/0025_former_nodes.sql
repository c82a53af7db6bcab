-- Viewers of a session that moves get what its next node does not have from the node before.

-- the node that gave the session up last; empty if none did
ALTER TABLE sessions ADD COLUMN former_node TEXT NOT NULL DEFAULT '';
