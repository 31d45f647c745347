-- Purpose: mark the rows that the broker has confirmed.
-- Parameters: $1 ids bigint[], all locked by this transaction.
-- Index: primary key.
update outbox set sent_at = clock_timestamp() where id = any ($1::bigint[])
