-- What waits for a webhook is counted at the begin and the end of every session, and the longest due is looked for at every
-- wake of the sender: neither reads the log of what was sent.
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (webhook_id, due_ms, id) WHERE state = 'pending';

-- A webhook is gone for its owner when it was deleted; its log, which may be long, is deleted later, part by part.
ALTER TABLE webhooks ADD COLUMN deleted_ms BIGINT;
CREATE INDEX webhooks_deleted ON webhooks (id) WHERE deleted_ms IS NOT NULL;
