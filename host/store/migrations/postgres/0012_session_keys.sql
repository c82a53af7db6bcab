-- Keys that end with the login session that made them. The session's row is deleted when it ends, and never comes back.

ALTER TABLE api_keys ADD COLUMN login_id BIGINT;
