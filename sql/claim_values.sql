-- Purpose: the values of large rows that claim.sql has locked in this transaction.
-- Parameters: $1 ids bigint[].
-- Index: primary key.
select o.id, o.payload, o.body, o.headers from outbox o where o.id = any ($1::bigint[])
