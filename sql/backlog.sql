-- Purpose: what waits, for metrics and status: per tier the rows that could go now, those held until later, and the
--          age of the oldest that could go.
-- Parameters: none. At most 1,000 tiers: names are the producers' to choose, and each becomes three metrics.
-- Index: outbox_pending, an index-only scan over the pending rows.
select o.tier,
       count(*) filter (where o.available_at <= now()) as backlog,
       count(*) filter (where o.available_at > now()) as held,
       extract(epoch from now() - min(o.available_at) filter (where o.available_at <= now()))::float8 as oldest_age
  from outbox o
 where o.sent_at is null and o.parked_at is null and o.cancelled_at is null
 group by o.tier
 order by o.tier
 limit 1000
