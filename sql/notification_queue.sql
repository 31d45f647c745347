-- Purpose: how full the server's queue of notifications is, from 0 to 1. When it is full, every commit that rings fails;
--          what fills it is a session that listens and never ends its transaction.
-- Parameters: none.
-- Index: none.
select pg_notification_queue_usage()
