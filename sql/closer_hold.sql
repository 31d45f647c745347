-- Purpose: give a message back to the outbox until its order can be closed; then it goes straight to the target.
-- Parameters: $1 message_id uuid, $2 tier text, $3 key text, $4 type text, $5 routing_key text, $6 body bytea,
--             $7 content_type text, $8 headers text (JSON), $9 due timestamptz (null: in half a minute).
-- Index: outbox_message_id_key. A message that is delivered again before it was acked finds its row there; a row that is
--        over (its look is wanted once more: its order is still locked, a due moved there and back, a clock was put back)
--        is pending again.
insert into outbox (message_id, tier, key, type, routing_key, body, content_type, headers, due_at, available_at)
values ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb,
        coalesce($9::timestamptz, now() + interval '30 s'), coalesce($9::timestamptz, now() + interval '30 s'))
    on conflict (message_id) do update
   set sent_at = null, cancelled_at = null, available_at = excluded.available_at, attempts = 0
 where outbox.sent_at is not null or outbox.cancelled_at is not null
