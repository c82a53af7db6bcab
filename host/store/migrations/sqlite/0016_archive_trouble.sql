-- Why an upload waits for its next try; the column `error` is for those that have failed.

ALTER TABLE archives ADD COLUMN trouble TEXT;
