-- Purpose: ring for other relays.
-- Parameters: $1 channel text, $2 payload text ('' look once; 'over' somebody may have inserted unannounced;
--             'try ...' for nobody but the one who rings).
-- Index: none.
select pg_notify($1, $2)
