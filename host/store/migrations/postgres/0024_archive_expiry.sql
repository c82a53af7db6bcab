-- When a recording is deleted at its store by a rule of its destination.

-- the time; null while it stays
ALTER TABLE archives ADD COLUMN expires_ms BIGINT;
-- the time that its owner was told; null until then
ALTER TABLE archives ADD COLUMN told_ms BIGINT;
