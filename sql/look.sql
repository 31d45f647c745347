-- Purpose: for each tier that this relay may claim, when its first pending row is (or was) available.
-- Parameters: $1 tiers text[], $2 lower bounds of available_at timestamptz[] (null: none), one for each tier.
-- Index: outbox_pending (tier, available_at, id), one probe a tier.
select t.tier, f.available_at, now() as now
  from unnest($1::text[], $2::timestamptz[]) as t (tier, bound)
 cross join lateral (
       select o.available_at
         from outbox o
        where o.tier = t.tier
          and o.sent_at is null and o.parked_at is null and o.cancelled_at is null
          and o.available_at >= coalesce(t.bound, '-infinity')
        order by o.available_at, o.id
        limit 1) f
 where not exists (select 1 from state s where s.name in ('pause.relay', 'pause.tier.' || t.tier))
