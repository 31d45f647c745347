-- Purpose: what a relay has to know before it relies on the doorbell: the lock K of this schema, who it is, and what
--          the trigger on the outbox says (null: there is none).
-- Parameters: $1 schema text.
-- Index: that of pg_class; run for each connection, and every 10 s on it. The numbers are those of migrations/always_doorbell.sql.
select ('x' || substr(k.hash, 1, 8))::bit(32)::int & 2147483647 as key1,
       ('x' || substr(k.hash, 9, 8))::bit(32)::int & 2147483647 as key2,
       pg_backend_pid() as pid,
       (select a.backend_start from pg_stat_activity a where a.pid = pg_backend_pid()) as since,
       current_setting('transaction_read_only') = 'on' as read_only,
       current_database()::text as database,
       exists (select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = $1::text and c.relname = 'outbox') as has_outbox,
       (select pg_get_triggerdef(t.oid)
          from pg_trigger t
          join pg_class c on c.oid = t.tgrelid
          join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = $1::text and c.relname = 'outbox' and t.tgname = 'outbox_bell' and t.tgenabled in ('O', 'A')
       ) as definition
  from (select md5(concat($1::text, '.outbox')) as hash) k
