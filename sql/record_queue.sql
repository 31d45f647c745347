-- Purpose: remember the delay queues that we declared, so that `status` can name those that only drain.
-- Parameters: $1 names text[].
-- Index: primary key of state.
insert into state (name)
select 'queue.' || q.name from unnest($1::text[]) as q (name)
    on conflict (name) do nothing
