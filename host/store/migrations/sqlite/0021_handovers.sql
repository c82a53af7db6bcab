-- Sessions that their node gives up go on at the node that their encoder comes to. Times are by the clock of the database.

-- how long the encoder may still return; null while a node owns the session
ALTER TABLE sessions ADD COLUMN returns_until_ms INTEGER;
-- when its first media arrived, and when its timeline was at zero
ALTER TABLE sessions ADD COLUMN began_ms INTEGER;
ALTER TABLE sessions ADD COLUMN timeline_zero_ms INTEGER;

-- 1: the owner gives the session up if its encoder is away
ALTER TABLE node_commands ADD COLUMN gives_up INTEGER NOT NULL DEFAULT 0 CHECK (gives_up IN (0, 1));

-- when a node that drains gives its sessions up
ALTER TABLE nodes ADD COLUMN moves_at_ms INTEGER NOT NULL DEFAULT 0;
