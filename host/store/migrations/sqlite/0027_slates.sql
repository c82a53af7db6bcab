-- Slates: the clip of a stream that plays while its encoder is away.

CREATE TABLE slates (
    -- deleted with the stream
    stream_id      INTEGER NOT NULL PRIMARY KEY,
    -- longest time that it plays, and the length of the clip
    max_seconds    INTEGER NOT NULL CHECK (max_seconds > 0),
    length_ms      INTEGER NOT NULL,
    video_codec    TEXT    NOT NULL,
    width          INTEGER NOT NULL,
    height         INTEGER NOT NULL,
    -- frames in a thousand seconds
    frame_rate     INTEGER NOT NULL,
    -- all NULL: no audio
    audio_codec    TEXT,
    sample_rate    INTEGER,
    channels       INTEGER,
    uploaded_ms    INTEGER NOT NULL,
    media_bytes    INTEGER NOT NULL,
    -- the MP4, last: the columns before it are read alone
    media          BLOB NOT NULL
) STRICT;
