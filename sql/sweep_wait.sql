-- Purpose: how long until the pass over one rule may be taken, in seconds, and when the last one ended unless one is
--          going on.
-- Parameters: $1 name text ('sweep.RULE'), $2 period text (an interval).
--          A moment that is ahead of the clock is none: see sweep_take.sql.
-- Index: primary key.
select extract(epoch from case when s.at > now() + interval '30 s' then interval '0 s' else greatest(
           s.at + case when s.info ? 'by' then interval '30 s' else $2::text::interval end - now(),
           interval '0 s') end)::float8 as wait,
       case when not s.info ? 'by' then extract(epoch from s.at)::float8 end as ended
  from state s
 where s.name = $1
