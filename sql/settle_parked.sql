-- Purpose: take rows out of circulation with their reason, until somebody requeues them.
-- Parameters: $1 ids bigint[], $2 attempts to add int[], $3 reasons text[]. All rows are locked by this transaction.
-- Index: primary key.
update outbox o
   set parked_at = clock_timestamp(), attempts = o.attempts + v.counted, last_error = v.reason
  from unnest($1::bigint[], $2::int[], $3::text[]) as v (id, counted, reason)
 where o.id = v.id
