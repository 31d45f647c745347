-- Purpose: give K back: whoever inserts from now on rings.
-- Parameters: $1, $2 the two numbers of K int.
-- Index: none.
select pg_advisory_unlock($1::int, $2::int)
