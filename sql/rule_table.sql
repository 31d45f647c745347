-- Purpose: find the table of a rule, describe the columns that its statements name, and say whether row-level security
--          applies to this role there ('' no order is hidden by it, 'some' its policies decide, 'all' no policy lets this
--          role read or update).
-- Parameters: $1 the table as relay.toml writes it text, $2 the columns text[].
-- Run: under the role's own search_path (`set local search_path to default`), because that is where a user expects an
--      unqualified table to be looked for; ours names one schema only. Not to_regclass: it raises without USAGE on the
--      schema, and the missing GRANT could not be told from a missing table.
-- Index: those of the catalog.
with found as (
    select c.oid, c.relkind, row_security_active(c.oid) as is_policed, n.oid as schema_oid, n.nspname, c.relname
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
), policies as (
    -- Without a permissive policy there are no rows; a restrictive one takes rows away. A lock wants both commands.
    select wanted.command,
           coalesce(bool_or(p.polpermissive), false) as lets,
           coalesce(bool_or(p.polpermissive and pg_get_expr(p.polqual, p.polrelid) = 'true'
                            and coalesce(pg_get_expr(p.polwithcheck, p.polrelid), 'true') = 'true')
                    and bool_and(p.polpermissive), false) as lets_all
      from found f
     cross join (values ('r'), ('w')) as wanted (command)
      left join pg_policy p on p.polrelid = f.oid and p.polcmd::text in ('*', wanted.command)
           and exists (select from unnest(p.polroles) as r (id) where r.id = 0 or pg_has_role(r.id, 'usage'))
     group by wanted.command
)
select format('%I.%I', f.nspname, f.relname) as table_name,
       quote_ident(f.nspname) as schema_name,
       quote_ident(current_user) as role_name,
       f.relkind in ('r', 'p') as is_table,
       f.relkind = 'p' as is_partitioned,
       (select case when not f.is_policed or bool_and(p.lets_all) then '' when bool_and(p.lets) then 'some' else 'all' end
          from policies p) as hides,
       array(select c.attname::text from pg_attribute c
              where c.attrelid = f.oid and c.attnum > 0 and not c.attisdropped order by c.attnum) as has_columns,
       -- Changes with every policy, and when row-level security is switched on or off for this role.
       row_security_active(f.oid)::text || coalesce((select md5(string_agg(p::text, '' order by p.oid))
                                                       from pg_policy p where p.polrelid = f.oid), '') as policies,
       has_schema_privilege(f.schema_oid, 'usage') as may_enter,
       quote_ident(w.name) as column_name,
       format_type(a.atttypid, a.atttypmod) as shown_type,
       -- Qualified, so that it means the same under any search_path; of a domain, the type beneath it.
       case when t.oid is not null then format('%I.%I', tn.nspname, t.typname) else '' end as type_name,
       case when t.typtype = 'e' then 'enum' when tn.nspname = 'pg_catalog' then t.typname::text else '' end as kind,
       coalesce(has_column_privilege(f.oid, a.attnum, 'select'), false) as may_select,
       coalesce(has_column_privilege(f.oid, a.attnum, 'update'), false) as may_update,
       -- Over partitions a unique index would need their key as well: there, any that begins with the column will do.
       exists (select from pg_index i
                where i.indrelid = f.oid and i.indisvalid and i.indpred is null and i.indkey[0] = a.attnum
                  and (i.indisunique and i.indnkeyatts = 1 or f.relkind = 'p')) as is_key
  from found f
 cross join unnest($2::text[]) with ordinality as w (name, n)
  left join pg_attribute a on a.attrelid = f.oid and a.attname = w.name and a.attnum > 0 and not a.attisdropped
  left join pg_type declared on declared.oid = a.atttypid
  left join pg_type t on t.oid = coalesce(nullif(declared.typbasetype, 0), declared.oid)
  left join pg_namespace tn on tn.oid = t.typnamespace
 order by w.n
