-- Purpose: columns of the outbox that are missing or of another type than this version reads and writes.
-- Parameters: none.
-- Index: the catalog's own.
with expected (name, type) as (
  values ('id', 'bigint'), ('message_id', 'uuid'), ('tier', 'text'), ('key', 'text'), ('type', 'text'),
         ('routing_key', 'text'), ('payload', 'jsonb'), ('body', 'bytea'), ('content_type', 'text'),
         ('headers', 'jsonb'), ('created_at', 'timestamp with time zone'), ('due_at', 'timestamp with time zone'),
         ('available_at', 'timestamp with time zone'), ('attempts', 'integer'), ('last_error', 'text'),
         ('sent_at', 'timestamp with time zone'), ('parked_at', 'timestamp with time zone'),
         ('cancelled_at', 'timestamp with time zone')
)
select e.name, e.type as expected, pg_catalog.format_type(a.atttypid, a.atttypmod) as found
  from expected e
  left join pg_catalog.pg_attribute a
    on a.attrelid = to_regclass('outbox') and a.attname = e.name and a.attnum > 0 and not a.attisdropped
 where pg_catalog.format_type(a.atttypid, a.atttypmod) is distinct from e.type
