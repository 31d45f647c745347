-- Purpose: find the function of a rule that closes one order.
-- Parameters: $1 the function as relay.toml writes it text, $2 the type of the order's id, qualified, text.
-- Run: under the role's own search_path, like rule_table.sql.
-- Of several with that name, one that takes exactly that type comes first; Postgres itself chooses at the call.
-- Index: those of the catalog.
select format('%I.%I', n.nspname, p.proname) as function_name,
       quote_ident(n.nspname) as schema_name,
       quote_ident(current_user) as role_name,
       format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) as signature,
       p.prorettype = 'void'::regtype as is_void,
       has_schema_privilege(n.oid, 'usage') as may_enter,
       has_function_privilege(p.oid, 'execute') as may_execute,
       p.prokind = 'f' and not p.proretset and p.pronargs >= 1 and p.pronargs - p.pronargdefaults <= 1
           and p.prorettype in ('boolean'::regtype, 'void'::regtype) as is_fit
  from parse_ident($1) as named (parts)
  join pg_proc p on p.proname = named.parts[cardinality(named.parts)]
  join pg_namespace n on n.oid = p.pronamespace
 where case cardinality(named.parts)
           when 1 then n.nspname = any (current_schemas(true))
           when 2 then n.nspname = named.parts[1]
           else false
       end
 order by p.proargtypes[0] = $2::text::regtype desc, array_position(current_schemas(true), n.nspname)
 limit 1
