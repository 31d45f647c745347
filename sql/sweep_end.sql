-- Purpose: end a pass; the period counts from here.
-- Parameters: $1 name text ('sweep.RULE'), $2 who has it uuid, $3 the pass ended this long ago text (an interval): the
--             period for one that was broken off, so that another relay takes it up at once.
-- Index: primary key.
update state s set at = now() - $3::text::interval, info = '{}' where s.name = $1 and s.info ->> 'by' = $2::uuid::text
