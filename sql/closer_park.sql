-- Purpose: park a message that the closer cannot apply. It is due, so a requeue sends it straight to the target.
-- Parameters: $1 message_id uuid, $2 tier text, $3 key text, $4 type text, $5 routing_key text, $6 body bytea,
--             $7 content_type text, $8 headers text (JSON), $9 reason text.
-- Index: outbox_message_id_key. A message that is delivered again before it was acked finds its row there; one that was
--        requeued, and failed once more, is parked once more.
insert into outbox (message_id, tier, key, type, routing_key, body, content_type, headers, due_at, parked_at, last_error)
values ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb, now(), now(), $9)
    on conflict (message_id) do update
   set sent_at = null, cancelled_at = null, parked_at = now(), last_error = excluded.last_error
 where outbox.sent_at is not null or outbox.cancelled_at is not null
