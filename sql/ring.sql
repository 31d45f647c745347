-- Purpose: ring for other relays.
-- Parameters: $1 channel text, $2 payload text ('' look once; 'over' somebody may have inserted unannounced).
-- Index: none.
select pg_notify($1, $2)
