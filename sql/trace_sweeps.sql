-- Purpose: what there is to say of who would apply rules: the last pass of each rule's sweep, and how many relays listen
--          (one with wake = "poll" does not).
-- Parameters: $1 rules text[].
-- Index: primary key of state.
select n.name as rule,
       case when s.info ? 'by' and s.at > now() - interval '30 s' then 0.0::float8
            else extract(epoch from now() - s.at)::float8 end as ended_ago,
       (select count(*) from pg_catalog.pg_stat_activity a
         where a.datname = current_database() and a.application_name = 'duebox listen') as relays
  from unnest($1::text[]) as n (name)
  left join state s on s.name = 'sweep.' || n.name
