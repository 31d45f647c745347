-- Purpose: tiers with pending rows that this relay does not claim. One that no configuration knows is a typo, and an
--          order that never closes; one that is due may be another relay's, which has to be rung for.
-- Parameters: $1 the tiers it claims text[].
-- Index: outbox_pending (tier, available_at, id), one probe for each distinct tier (a loose index scan), however many
--        rows it has. Those that are due come first, so that a hundred that are not never hide them; the walk ends
--        after a thousand, for a producer may have taken the wrong column for the tier.
with recursive tiers (tier, available_at) as (
  (select o.tier, o.available_at
     from outbox o
    where o.sent_at is null and o.parked_at is null and o.cancelled_at is null
    order by o.tier, o.available_at
    limit 1)
  union all
  select f.tier, f.available_at
    from tiers t
   cross join lateral (
         select o.tier, o.available_at
           from outbox o
          where o.sent_at is null and o.parked_at is null and o.cancelled_at is null
            and o.tier > t.tier
          order by o.tier, o.available_at
          limit 1) f
)
select t.tier,
       t.available_at <= now()
       and not exists (select 1 from state s where s.name in ('pause.relay', 'pause.tier.' || t.tier)) as due
  from (select * from tiers where tier <> all ($1::text[]) limit 1000) t
 order by due desc, t.tier
 limit 100
