-- Purpose: what a command needs in our schema and this role may not do, each as its GRANT.
-- Parameters: $1 schema text, $2 our tables text[], $3 for each of them a privilege text[], $4 whether it rings boolean.
-- Index: the catalog's own.
with ours as (select n.oid, n.nspname, quote_ident(current_user) as role from pg_namespace n where n.nspname = $1::text)
select format('grant usage on schema %I to %s;', o.nspname, o.role) as missing
  from ours o
 where not has_schema_privilege(o.oid, 'usage')
union all
select format('grant %s on %I.%I to %s;', string_agg(w.privilege, ', ' order by w.n), o.nspname, c.relname, o.role)
  from ours o
 cross join unnest($2::text[], $3::text[]) with ordinality as w (relation, privilege, n)
  join pg_class c on c.relnamespace = o.oid and c.relname = w.relation
 where not has_table_privilege(c.oid, w.privilege)
 group by o.nspname, o.role, c.relname
union all
select format('grant execute on function %I.ring() to %s;', o.nspname, o.role)
  from ours o
  join pg_proc p on p.pronamespace = o.oid and p.proname = 'ring' and p.pronargs = 0
 where $4::boolean and not has_function_privilege(p.oid, 'execute')
