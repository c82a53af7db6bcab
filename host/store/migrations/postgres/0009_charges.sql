-- Charges: what sessions cost, at which prices, and where each posting belongs.

-- The prices a session began with: a change of the configuration does not alter a running session. The total is kept
-- beside the transfers and changed in the transaction that posts them.
ALTER TABLE sessions ADD COLUMN price_msat BIGINT  NOT NULL DEFAULT 0 CHECK (price_msat BETWEEN 0 AND 2100000000000000000);
ALTER TABLE sessions ADD COLUMN free_slots BIGINT  NOT NULL DEFAULT 0 CHECK (free_slots >= 0);
ALTER TABLE sessions ADD COLUMN charged_msat BIGINT  NOT NULL DEFAULT 0 CHECK (charged_msat BETWEEN 0 AND 2100000000000000000);

-- What a posting is about, where it is about one of these: the destination, the session's minute, the clock hour of bytes.
ALTER TABLE transfers ADD COLUMN destination_id BIGINT;
ALTER TABLE transfers ADD COLUMN minute BIGINT  CHECK (minute >= 0);
ALTER TABLE transfers ADD COLUMN hour_ms BIGINT  CHECK (hour_ms % 3600000 = 0);

-- Bytes that a pass over the hour has seen. What was sent before there were passes is never charged.
ALTER TABLE bandwidth ADD COLUMN billed_bytes BIGINT  NOT NULL DEFAULT 0 CHECK (billed_bytes >= 0);

UPDATE bandwidth SET billed_bytes = bytes;

CREATE INDEX bandwidth_unbilled ON bandwidth (account_id, hour_ms) WHERE billed_bytes < bytes;

-- The session that a destination's bytes belong to is its newest.
CREATE INDEX session_destinations_by_destination ON session_destinations (destination_id, started_ms);

-- Playback above the allowance, by account and UTC clock hour: the price of the hour, and what of it was charged and
-- waived so far. Changed in the transaction that posts the transfers.
CREATE TABLE overage_hours (
    account_id        BIGINT  NOT NULL REFERENCES accounts (id),
    hour_ms           BIGINT  NOT NULL CHECK (hour_ms % 3600000 = 0),
    price_msat_per_gb BIGINT  NOT NULL CHECK (price_msat_per_gb BETWEEN 0 AND 2100000000000000000),
    limit_bytes       BIGINT  NOT NULL CHECK (limit_bytes >= 0),
    charged_msat      BIGINT  NOT NULL DEFAULT 0 CHECK (charged_msat BETWEEN 0 AND 2100000000000000000),
    waived_msat       BIGINT  NOT NULL DEFAULT 0 CHECK (waived_msat >= 0),
    passes            BIGINT  NOT NULL DEFAULT 0,
    PRIMARY KEY (account_id, hour_ms)
);
