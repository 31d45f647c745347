-- Purpose: tiers that pending rows name and this relay does not know: typos there are orders that never close.
-- Parameters: $1 known tiers text[].
-- Index: outbox_pending (tier, ...), one probe for each distinct tier (a loose index scan), however many rows it has.
with recursive tiers (tier) as (
  (select o.tier
     from outbox o
    where o.sent_at is null and o.parked_at is null and o.cancelled_at is null
    order by o.tier
    limit 1)
  union all
  select (select o.tier
            from outbox o
           where o.sent_at is null and o.parked_at is null and o.cancelled_at is null
             and o.tier > t.tier
           order by o.tier
           limit 1)
    from tiers t
   where t.tier is not null
)
select t.tier from tiers t where t.tier is not null and t.tier <> all ($1::text[]) limit 100
