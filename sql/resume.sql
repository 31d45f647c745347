-- Purpose: end pauses and wake the relays, so that what waited leaves at once: nobody rang for those rows.
-- Parameters: $1 what text[] (as in pause.sql); null: everything.
-- Index: primary key of state; few rows.
with ended as (
  delete from state s
   where s.name like 'pause.%' and ($1::text[] is null or substr(s.name, 7) = any ($1::text[]))
  returning s.name, s.at, s.info
)
select substr(e.name, 7) as name, extract(epoch from now() - e.at)::float8 as age,
       to_char(e.at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since,
       e.info ->> 'reason' as reason, e.info ->> 'role' as role, e.info ->> 'login' as login, e.info ->> 'host' as host,
       ring()::text as rung
  from ended e
 order by e.name
