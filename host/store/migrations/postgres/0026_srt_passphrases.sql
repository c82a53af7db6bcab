-- Encoders that connect by SRT encrypt with a passphrase of the stream.

-- sealed; NULL: callers send in clear
ALTER TABLE streams ADD COLUMN srt_passphrase_sealed BYTEA;
