-- Purpose: every message of one key, in order. Of a key that very many have, which is a mistake of the application's, the
--          newest hundred and how many there are, counted up to 10,000.
-- Parameters: $1 key text.
-- Index: outbox_key (key). By itself the planner might take a key for frequent, and walk the primary key backwards to its
--        newest rows, through the whole table.
with found as materialized (
  select o.id from outbox o where o.key = $1 limit 10000
), shown as (
  select f.id from found f order by f.id desc limit 100
)
select o.message_id, o.tier, o.type, o.routing_key, o.created_at, o.due_at, o.available_at, o.attempts, o.last_error,
       o.sent_at, o.parked_at, o.cancelled_at, now() as now, (select count(*) from found) as total,
       -- A large payload is nobody's event of ours, and is not read for this.
       case when pg_column_size(o.payload) <= 2000 then o.payload ->> 'by' end as by,
       case when pg_column_size(o.payload) <= 2000 then o.payload ->> 'rule' end as rule
  from shown s
  join outbox o on o.id = s.id
 order by o.id
