-- Purpose: the GRANT for which a statement of a rule's was refused. Postgres names the object without its schema: one row
--          for each object of that name that this role may not use.
-- Parameters: $1 the kind of object as Postgres names it text ('table', 'view', 'schema', 'function', ...), $2 its name text.
-- Run: under the role's own search_path.
-- Index: those of the catalog.
select format('grant %s to %I;', denied.what, current_user) as cure
  from (select format('select on %I.%I', n.nspname, c.relname) as what
          from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where $1 in ('table', 'view', 'materialized view', 'foreign table', 'relation')
           and c.relname = $2 and c.relkind in ('r', 'p', 'v', 'm', 'f') and not has_table_privilege(c.oid, 'select')
         union all
        select format('usage on sequence %I.%I', n.nspname, c.relname)
          from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where $1 = 'sequence' and c.relname = $2 and c.relkind = 'S' and not has_sequence_privilege(c.oid, 'usage')
         union all
        select format('execute on function %I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid))
          from pg_proc p join pg_namespace n on n.oid = p.pronamespace
         where $1 in ('function', 'procedure') and p.proname = $2 and not has_function_privilege(p.oid, 'execute')
         union all
        select format('usage on schema %I', n.nspname)
          from pg_namespace n
         where $1 = 'schema' and n.nspname = $2 and not has_schema_privilege(n.oid, 'usage')) as denied
 limit 2
