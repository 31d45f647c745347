-- Purpose: open transactions that may have inserted into the outbox without ringing, for a relay that goes to sleep.
--          Not pg_snapshot_xmax: it is the last completed transaction + 1, so the newest open one would be missed
--          (measured: 5 of 5 rows stranded).
--          A prepared transaction has no process, so its pid is 0, and PREPARE gives it another name than it had.
-- Parameters: $1 schema text.
-- Index: none; reads the lock table, at most 100 times a second and only on the way to sleep.
select l.virtualtransaction as transaction, coalesce(min(l.pid), 0) as pid
  from pg_locks l
 where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
   and l.database = (select d.oid from pg_database d where d.datname = current_database())
   and l.relation in (
       select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = $1::text and c.relname = 'outbox'
       union all
       select p.relid
         from pg_class c join pg_namespace n on n.oid = c.relnamespace, pg_partition_tree(c.oid) p
        where n.nspname = $1::text and c.relname = 'outbox')
 group by l.virtualtransaction
