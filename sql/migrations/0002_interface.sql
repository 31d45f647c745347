-- Purpose: what producers and operators call, from any driver, with text parameters.
-- Index used: outbox_message_id_key by message_id, outbox_key by key.
--
-- enqueue and cancel are SECURITY DEFINER, so a producer needs no right on the table. Parameters
-- have the columns' names (they can be given by name); inside they are always written
-- function.parameter, and a bare name is a column.

-- Writes one message in the caller's transaction and returns its message_id. Calling it again with
-- the same message_id changes nothing while that row exists: a retried order is one message.
create function enqueue(
    tier         text,
    key          text,
    type         text,
    payload      text,
    due_at       timestamptz default null,
    routing_key  text        default null,
    headers      text        default '{}',
    message_id   uuid        default gen_random_uuid()
) returns uuid
language plpgsql security definer as $$
#variable_conflict use_column
declare
    -- Drivers that bind every parameter send null for "not given".
    given constant uuid := coalesce(enqueue.message_id, gen_random_uuid());
begin
    insert into outbox (tier, key, type, payload, due_at, routing_key, headers, message_id)
    values (enqueue.tier, enqueue.key, enqueue.type, enqueue.payload::jsonb, enqueue.due_at,
            enqueue.routing_key, coalesce(enqueue.headers, '{}')::jsonb, given)
    -- By name: a column list would be read as the parameter as well.
    on conflict on constraint outbox_message_id_key do nothing;
    return given;
end $$;

-- Takes one pending message back. Never waits for a relay: a row that is locked is being published,
-- and SKIP LOCKED answers false at once. True: no publish starts after the caller commits.
-- In a REPEATABLE READ transaction a row that changed since its snapshot raises 40001, as usual.
create function cancel(message_id uuid) returns boolean
language plpgsql security definer as $$
#variable_conflict use_column
begin
    update outbox set cancelled_at = now()
    where id = (
        select id from outbox
        where message_id = cancel.message_id
          and sent_at is null and parked_at is null and cancelled_at is null
        for update skip locked
    );
    return found;
end $$;

-- The same for every pending message of a business id. True only if there was one and all of them
-- were taken; on false those not locked are cancelled all the same. One statement, because two would
-- see two snapshots, and a row sent between them would be missing from the count.
create function cancel(tier text, key text) returns boolean
language plpgsql security definer as $$
#variable_conflict use_column
declare
    all_taken boolean;
begin
    with taken as (
        update outbox set cancelled_at = now()
        where id = any (array(
            select id from outbox
            where tier = cancel.tier and key = cancel.key
              and sent_at is null and parked_at is null and cancelled_at is null
            for update skip locked
        ))
        returning id
    )
    select count(*) > 0 and count(*) = (
        select count(*) from outbox
        where tier = cancel.tier and key = cancel.key
          and sent_at is null and parked_at is null and cancelled_at is null
    )
    into all_taken from taken;
    return all_taken;
end $$;

-- Puts one parked message back into circulation, at once and with all its attempts. last_error
-- stays until the next verdict: it is why somebody requeued. Rings, as an UPDATE does not.
create function requeue(message_id uuid) returns boolean
language plpgsql as $$
#variable_conflict use_column
begin
    update outbox set parked_at = null, attempts = 0, available_at = now()
    where message_id = requeue.message_id and parked_at is not null;
    if found then
        perform ring();
        return true;
    end if;
    return false;
end $$;

-- The same for the parked messages of a business id, or, without a key, of the whole tier (which
-- reads the table: an operator's command, not worth an index on every row). Returns how many.
create function requeue(tier text, key text default null) returns bigint
language plpgsql as $$
#variable_conflict use_column
declare
    requeued bigint;
begin
    -- Two statements: one with "key = $2 or $2 is null" could not use the index.
    if requeue.key is null then
        update outbox set parked_at = null, attempts = 0, available_at = now()
        where tier = requeue.tier and parked_at is not null;
    else
        update outbox set parked_at = null, attempts = 0, available_at = now()
        where tier = requeue.tier and key = requeue.key and parked_at is not null;
    end if;
    get diagnostics requeued = row_count;
    if requeued > 0 then
        perform ring();
    elsif requeue.key is null and requeue.tier ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then
        -- An untyped literal is a text to Postgres, so requeue('<uuid>') comes here: a silent 0
        -- would look like "nothing was parked".
        raise exception 'no tier is named %, which looks like a message_id', requeue.tier
            using errcode = 'invalid_parameter_value',
                  hint = format('Write requeue(%L::uuid).', requeue.tier);
    end if;
    return requeued;
end $$;

-- Wakes the relays listening on this schema's channel at commit. For statements that ring by hand.
create function ring() returns void
language plpgsql as $$
begin
    -- Not current_schema(): it is pg_catalog under the search_path below. Not ::regnamespace::text:
    -- that is quoted, the channel is not.
    perform pg_notify(n.nspname || '.outbox', '')
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.oid = 'outbox'::regclass;
end $$;

-- A fixed search_path: for the definer's functions so that no table or operator of the caller's is
-- taken for ours (pg_temp is named last, or it would be searched first), for the others so that they
-- work from any session. PUBLIC, who may execute by default, may not.
do $$
declare
    f regprocedure;
begin
    foreach f in array array[
        'enqueue(text, text, text, text, timestamptz, text, text, uuid)', 'cancel(uuid)', 'cancel(text, text)',
        'requeue(uuid)', 'requeue(text, text)', 'ring()'
    ]::regprocedure[] loop
        execute format('alter function %s set search_path = pg_catalog, %I, pg_temp', f, current_schema());
        execute format('revoke execute on function %s from public', f);
    end loop;
end $$;
