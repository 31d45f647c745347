-- Purpose: the pauses in force: since when, by whom and why. Whoever wrote one by hand said none of that.
-- Parameters: none. At most 1,000.
-- Index: none; state has few rows.
select substr(s.name, 7) as name, extract(epoch from now() - s.at)::float8 as age,
       to_char(s.at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since,
       s.info ->> 'reason' as reason, s.info ->> 'role' as role, s.info ->> 'login' as login, s.info ->> 'host' as host
  from state s
 where s.name like 'pause.%'
 order by s.name
 limit 1000
