-- Purpose: lock the due rows of one tier, oldest first, so that no other relay has them.
-- Parameters: $1 tier text, $2 lower bound of available_at (null: none), $3 most rows to take bigint.
-- Index: outbox_pending (tier, available_at, id), one scan; stops at the last row fetched.
-- Run: through a cursor (`declare claim no scroll cursor for` this statement), so that what is not fetched is not
--      locked. Nothing here can raise over one row's value, and rows that are skipped because somebody else has them
--      are not detoasted. The values of a large row are left out (its stored size says how large) and read by
--      claim_values.sql as far as the batch has room: one fetch of many large rows would take all memory.
select o.id, o.message_id, o.key, o.type, o.routing_key, o.content_type, o.created_at, o.due_at, o.available_at,
       o.attempts, now() as now, s.stored,
       case when s.stored <= 2000 then o.payload end as payload,
       case when s.stored <= 2000 then o.body end as body,
       case when s.stored <= 2000 then o.headers end as headers
  from outbox o
 cross join lateral (
       select coalesce(pg_column_size(o.payload), 0) + coalesce(pg_column_size(o.body), 0)
              + pg_column_size(o.headers) as stored) s
 where o.tier = $1
   and o.sent_at is null and o.parked_at is null and o.cancelled_at is null
   and o.available_at <= now()
   and o.available_at >= coalesce($2::timestamptz, '-infinity')
   and not exists (select 1 from state s where s.name in ('pause.relay', 'pause.tier.' || $1))
 order by o.available_at, o.id
 limit $3
   for update of o skip locked
