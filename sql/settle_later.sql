-- Purpose: put rows back with a later available_at: held until due, refused for now, or a counted failure.
-- Parameters: $1 ids bigint[], $2 available_at timestamptz[], $3 attempts to add int[], $4 reasons text[] (null keeps
--             the last one). All rows are locked by this transaction.
-- Index: primary key.
update outbox o
   set available_at = v.available_at, attempts = o.attempts + v.counted, last_error = coalesce(v.reason, o.last_error)
  from unnest($1::bigint[], $2::timestamptz[], $3::int[], $4::text[]) as v (id, available_at, counted, reason)
 where o.id = v.id
