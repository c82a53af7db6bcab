-- Pages of the history are read in the order of an index that holds all the filters look at.

DROP INDEX session_destinations_by_account;

CREATE INDEX session_destinations_by_account
    ON session_destinations (account_id, started_ms, id, stream_id, platform, cost_msat);
CREATE INDEX session_destinations_by_stream
    ON session_destinations (stream_id, started_ms, id, platform, cost_msat);

-- How long sessions ran is read from the index alone.
DROP INDEX sessions_by_stream;

CREATE INDEX sessions_by_stream ON sessions (stream_id, started_ms, ended_ms);
