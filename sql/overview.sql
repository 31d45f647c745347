-- Purpose: what `status` shows beside the backlog: parked rows, old queues, and the relays that listen
--          (one with wake = "poll" does not).
-- Parameters: none.
-- Index: outbox_parked; primary key of state.
select (select count(*) from outbox where parked_at is not null) as parked,
       (select coalesce(array_agg(substr(s.name, 7) order by s.name), '{}')
          from state s where s.name like 'queue.%') as queues,
       (select count(*) from pg_catalog.pg_stat_activity a
         where a.datname = current_database() and a.application_name = 'duebox listen') as relays
