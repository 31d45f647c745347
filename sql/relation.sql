-- Purpose: whether the outbox is a table all of whose rows this role can lock: what it is, and whether row-level security
--          hides rows. No row: it does not exist.
-- Parameters: none.
-- Index: the catalog's own.
select case c.relkind when 'r' then 'table' when 'p' then 'partitioned table' when 'v' then 'view'
                      when 'm' then 'materialized view' when 'f' then 'foreign table' else 'no table' end as kind,
       c.relkind in ('r', 'p') as is_table,
       row_security_active(c.oid) as hidden
  from pg_catalog.pg_class c
 where c.oid = to_regclass('outbox')
