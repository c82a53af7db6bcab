-- Accounts that an operator has disabled, and links for people of an existing account.

ALTER TABLE accounts ADD COLUMN disabled_ms BIGINT;
-- the account that the link belongs to; empty for a link that makes an account
ALTER TABLE invites ADD COLUMN account_id BIGINT REFERENCES accounts (id);
