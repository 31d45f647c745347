-- Purpose: take K, without waiting: producers stop ringing while it is held.
-- Parameters: $1, $2 the two numbers of K int.
-- Index: none.
select pg_try_advisory_lock($1::int, $2::int)
