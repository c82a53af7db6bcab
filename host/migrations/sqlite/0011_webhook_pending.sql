-- What waits for a webhook is counted at the begin and the end of every session, and the longest due is looked for at every
-- wake of the sender: neither reads the log of what was sent.
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (webhook_id, due_ms, id) WHERE state = 'pending';
