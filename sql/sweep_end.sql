-- Purpose: end a pass; the period counts from here. Gives that moment, in seconds since 1970; no row when somebody else
--          has taken the pass over, whose end is theirs.
-- Parameters: $1 name text ('sweep.RULE'), $2 who has it uuid, $3 the pass ended this long ago text (an interval): the
--             period for one that was broken off, so that another relay takes it up at once.
-- Index: primary key.
update state s set at = now() - $3::text::interval, info = '{}' where s.name = $1 and s.info ->> 'by' = $2::uuid::text
returning extract(epoch from s.at)::float8 as ended
