-- Purpose: how an insert rings. Channel: the schema's name and '.outbox'. The trigger itself: always_doorbell.sql.
--
-- One ring a statement, not a row, and an empty payload, so that all rings of a transaction collapse
-- into one notification. It says "look", never what to find: rows are found by their state.

create function ring_on_insert() returns trigger
language plpgsql as $$
begin
    -- Qualified, as this runs under the producer's search_path.
    perform pg_catalog.pg_notify(pg_catalog.concat(tg_table_schema, '.', tg_table_name), '');
    return null;
end $$;

-- Firing a trigger needs no right on its function.
revoke execute on function ring_on_insert() from public;
