-- Purpose: privileges that this role needs on our tables and does not have, each as the text of its GRANT.
-- Parameters: none.
-- Index: none, no table is read.
with needed (privilege, relation) as (
  values ('select', 'outbox'), ('insert', 'outbox'), ('delete', 'outbox'),
         ('select', 'state'), ('insert', 'state'), ('update', 'state'), ('delete', 'state')
), columns (name) as (
  values ('available_at'), ('attempts'), ('last_error'), ('sent_at'), ('parked_at'), ('cancelled_at')
)
select n.privilege || ' on ' || quote_ident(current_schema()) || '.' || n.relation as missing
  from needed n
 where not has_table_privilege(to_regclass(n.relation), n.privilege)
union all
select 'update (' || string_agg(c.name, ', ') || ') on ' || quote_ident(current_schema()) || '.outbox'
  from columns c
  join pg_catalog.pg_attribute a on a.attrelid = to_regclass('outbox') and a.attname = c.name
 where not has_column_privilege(a.attrelid, a.attnum, 'update')
having count(*) > 0
