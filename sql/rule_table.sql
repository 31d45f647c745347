-- Purpose: find the table of a rule and describe the three columns that its statements name.
-- Parameters: $1 the table as relay.toml writes it text, $2 the columns text[].
-- Run: under the role's own search_path (`set local search_path to default`), because that is where a user expects an
--      unqualified table to be looked for; ours names one schema only. Not to_regclass: it raises without USAGE on the
--      schema, and the missing GRANT could not be told from a missing table.
-- Index: those of the catalog.
with found as (
    select c.oid, c.relkind, n.oid as schema_oid, n.nspname, c.relname
      from parse_ident($1) as named (parts)
      join pg_class c on c.relname = named.parts[cardinality(named.parts)]
      join pg_namespace n on n.oid = c.relnamespace
     where c.relkind in ('r', 'p', 'v', 'm', 'f')
       and case cardinality(named.parts)
               when 1 then n.nspname = any (current_schemas(true))
               when 2 then n.nspname = named.parts[1]
               else false
           end
     order by array_position(current_schemas(true), n.nspname)
     limit 1
)
select format('%I.%I', f.nspname, f.relname) as table_name,
       quote_ident(f.nspname) as schema_name,
       quote_ident(current_user) as role_name,
       f.relkind in ('r', 'p') as is_table,
       has_schema_privilege(f.schema_oid, 'usage') as may_enter,
       quote_ident(w.name) as column_name,
       format_type(a.atttypid, a.atttypmod) as shown_type,
       -- Qualified, so that it means the same under any search_path; of a domain, the type beneath it.
       case when t.oid is not null then format('%I.%I', tn.nspname, t.typname) else '' end as type_name,
       case when t.typtype = 'e' then 'enum' when tn.nspname = 'pg_catalog' then t.typname::text else '' end as kind,
       coalesce(has_column_privilege(f.oid, a.attnum, 'select'), false) as may_select,
       coalesce(has_column_privilege(f.oid, a.attnum, 'update'), false) as may_update
  from found f
 cross join unnest($2::text[]) with ordinality as w (name, n)
  left join pg_attribute a on a.attrelid = f.oid and a.attname = w.name and a.attnum > 0 and not a.attisdropped
  left join pg_type declared on declared.oid = a.atttypid
  left join pg_type t on t.oid = coalesce(nullif(declared.typbasetype, 0), declared.oid)
  left join pg_namespace tn on tn.oid = t.typnamespace
 order by w.n
