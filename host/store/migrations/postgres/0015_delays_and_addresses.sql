-- When a destination follows what is wanted of it, and from where a stream key may be used.

ALTER TABLE destinations ADD COLUMN start_delay_secs BIGINT NOT NULL DEFAULT 0 CHECK (start_delay_secs BETWEEN 0 AND 300);
ALTER TABLE destinations ADD COLUMN stop_delay_secs BIGINT NOT NULL DEFAULT 0 CHECK (stop_delay_secs BETWEEN 0 AND 300);
-- networks in CIDR form with commas between; empty for all addresses
ALTER TABLE streams ADD COLUMN allowed_addresses TEXT NOT NULL DEFAULT '';
