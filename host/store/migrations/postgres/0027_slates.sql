-- Slates: the clip of a stream that plays while its encoder is away.

CREATE TABLE slates (
    -- deleted with the stream
    stream_id      BIGINT  NOT NULL PRIMARY KEY,
    -- longest time that it plays, and the length of the clip
    max_seconds    BIGINT  NOT NULL CHECK (max_seconds > 0),
    length_ms      BIGINT  NOT NULL,
    video_codec    TEXT    NOT NULL,
    width          BIGINT  NOT NULL,
    height         BIGINT  NOT NULL,
    -- frames in a thousand seconds
    frame_rate     BIGINT  NOT NULL,
    -- all NULL: no audio
    audio_codec    TEXT,
    sample_rate    BIGINT,
    channels       BIGINT,
    uploaded_ms    BIGINT  NOT NULL,
    media_bytes    BIGINT  NOT NULL,
    -- the MP4, last: the columns before it are read alone
    media          BYTEA   NOT NULL
);
