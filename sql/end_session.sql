-- Purpose: end our own session of before, which the server may not know to be gone: while it holds K, producers do not
--          ring.
-- Parameters: $1 its pid int, $2 when it began timestamptz (a pid may have gone to somebody else).
-- Index: none, run once a reconnect, until it returns nothing: a session ends a moment after it is told to.
select pg_terminate_backend(a.pid)
  from pg_stat_activity a
 where a.pid = $1 and a.backend_start = $2 and a.usename = current_user
