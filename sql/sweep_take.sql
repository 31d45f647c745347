-- Purpose: take the pass over one rule, so that one relay sweeps it at a time.
-- Parameters: $1 name text ('sweep.RULE'), $2 who takes it uuid, $3 period text (an interval).
-- Gives one row when it was taken: the first time ever, when the period since the end of the last pass is over, when
-- whoever has it was silent for 30 s, when it was taken by a clock ahead of this one (a failover), and when it is our own
-- (the database was away meanwhile).
-- Index: primary key.
insert into state as s (name, info) values ($1, jsonb_build_object('by', $2::uuid))
    on conflict (name) do update set at = now(), info = excluded.info
 where s.info ->> 'by' = $2::uuid::text
    or s.at > now() + interval '30 s'
    or s.at <= now() - case when s.info ? 'by' then interval '30 s' else $3::text::interval end
returning name
