-- Purpose: the two tables of duebox. `outbox` carries messages, `state` what the relays share.
-- Names are unqualified: search_path chooses the schema. `duebox migrate` sets it; in psql run
--   create schema duebox; set search_path = duebox, pg_temp;
--
-- Life cycle of a row (each state is exactly one of the three columns, or none):
--
--      INSERT --> pending ----------> sent        sent_at       kept until somebody deletes it
--                 ^  |  \-----------> cancelled   cancelled_at  likewise
--         requeue |  v
--                 parked                          parked_at     kept until requeued, reason in last_error
--
-- A held row is a pending one whose available_at lies ahead. Nothing leaves `sent` or `cancelled`.

create table outbox (
    -- "always": a producer that could choose ids could take those the identity gives out next.
    id            bigint      generated always as identity primary key,
    message_id    uuid        not null default gen_random_uuid(),
    tier          text        not null,
    key           text,
    type          text,
    routing_key   text,
    payload       jsonb,
    body          bytea,
    content_type  text        not null default 'application/json',
    headers       jsonb       not null default '{}',
    created_at    timestamptz not null default now(),
    due_at        timestamptz,
    available_at  timestamptz not null default now(),
    attempts      integer     not null default 0,
    last_error    text,
    sent_at       timestamptz,
    parked_at     timestamptz,
    cancelled_at  timestamptz,

    -- One message in the broker per message_id, over all retries. Also the arbiter of
    -- enqueue's ON CONFLICT. Serves cancel(message_id) and requeue(message_id).
    constraint outbox_message_id_key unique (message_id),

    -- A constraint aborts the transaction that writes the order, so here stands only what no relay
    -- could make sense of. A routing_key, type or content_type too long for AMQP is not refused:
    -- the relay parks that row with the reason, and the order is kept.

    -- With both, nobody could tell which one the consumer was meant to read.
    constraint outbox_payload_or_body check (num_nonnulls(payload, body) = 1),
    -- AMQP headers are a table; an array or a number has no place to go.
    constraint outbox_headers_are_an_object check (jsonb_typeof(headers) = 'object'),
    -- 'infinity' has no delay, and would be the one row that is never late and never sent.
    constraint outbox_due_at_is_finite check (isfinite(due_at)),
    constraint outbox_available_at_is_finite check (isfinite(available_at)),
    constraint outbox_created_at_is_finite check (isfinite(created_at)),
    -- The states exclude each other: a row that is sent and cancelled has no true answer for trace.
    constraint outbox_sent_parked_or_cancelled check (num_nonnulls(sent_at, parked_at, cancelled_at) <= 1),
    constraint outbox_attempts_not_negative check (attempts >= 0),
    -- Both are index entries. A btree takes some 2,700 bytes; a longer key would fail the order with
    -- "index row size exceeds btree maximum", which names neither the column nor the limit.
    constraint outbox_tier_1_to_255_bytes check (octet_length(tier) between 1 and 255),
    constraint outbox_key_up_to_1024_bytes check (octet_length(key) <= 1024)
) with (
    -- Full pages: every update of a row moves available_at or leaves the pending index, so none can
    -- be a heap-only one, and room kept free in a page buys nothing (measured at 70: same speed,
    -- 10 % larger, none of 200,000 updates heap-only).
    fillfactor = 100,
    -- Each row dies once on its way (pending -> sent), so this table makes dead entries as fast as
    -- it makes rows, and the claim walks over them: clean at 1 %, not at the default 20 %.
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.01,
    -- No rests: a vacuum that is slower than the producers never catches up.
    autovacuum_vacuum_cost_delay = 0,
    -- The share of pending rows swings between all and almost none within minutes; a plan made for
    -- the other extreme sorts where it should walk the index.
    autovacuum_analyze_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);

-- Serves every claim (one tier: order by available_at, id), the next available_at of a tier, and
-- the counts of pending, due and held rows. Partial, so it stays as small as the backlog.
create index outbox_pending on outbox (tier, available_at, id)
    where sent_at is null and parked_at is null and cancelled_at is null;

-- Serves cancel(tier, key), requeue(tier, key) and looking an order up. Messages without a business
-- id are never looked up by one.
create index outbox_key on outbox (key) where key is not null;

-- Serves `duebox status` and whoever lists or counts parked rows: without it they read every row ever
-- sent. Rows that were never parked cost nothing.
create index outbox_parked on outbox (parked_at) where parked_at is not null;

comment on table outbox is 'duebox: one row is one message on its way to RabbitMQ';

-- What relays share, one row a name:
--
--   schema             info {"version": n}: the last migration applied
--   pause.relay        present = paused; likewise pause.sweep, pause.closer,
--                      pause.tier.NAME and pause.rule.NAME
--   sweep.RULE         the pass over this rule: who has it and when it was last refreshed
--   queue.NAME         a queue that duebox declared, so that `status` can list the old ones
--
-- Who is alive is not here: it is read from pg_stat_activity, which cannot be stale.
create table state (
    name  text        primary key,
    at    timestamptz not null default now(),
    info  jsonb       not null default '{}'
) with (
    -- Few rows, updated with each batch of a sweep, and no index on what changes: half-empty pages
    -- keep those updates heap-only.
    fillfactor = 50
);

comment on table state is 'duebox: pauses, sweep passes and declared queues, shared by all relays';
