-- Purpose: show that a pass goes on. No row is updated when somebody else has taken it over.
-- Parameters: $1 name text ('sweep.RULE'), $2 who has it uuid.
-- Index: primary key.
update state s set at = now() where s.name = $1 and s.info ->> 'by' = $2::uuid::text
