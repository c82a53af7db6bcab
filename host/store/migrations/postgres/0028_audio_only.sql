-- Recordings and clips without video, which have no poster.

ALTER TABLE archives ADD COLUMN audio_only BIGINT NOT NULL DEFAULT 0 CHECK (audio_only IN (0, 1));
