-- SPDX-License-Identifier: MIT
-- Roles with least rights, after schema.sql. Idempotent: apply it again at will.
--
--   psql -d likesync -f sql/roles.sql
--   psql -d likesync -v daemon_role=likesyncd -v read_role=likesync_read -f ...
--
-- The daemon logs in by peer authentication over the unix socket, or set a
-- password: ALTER ROLE likesyncd PASSWORD '...'. DBAs and reports get the read
-- role: GRANT likesync_read TO somebody.

\set ON_ERROR_STOP on
\if :{?daemon_role} \else \set daemon_role likesyncd \endif
\if :{?read_role} \else \set read_role likesync_read \endif
SET client_min_messages = warning;

SELECT format('CREATE ROLE %I LOGIN', :'daemon_role')
 WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'daemon_role') \gexec
SELECT format('CREATE ROLE %I NOLOGIN', :'read_role')
 WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'read_role') \gexec

BEGIN;

-- A daemon that dies in the middle of a batch must not keep its row locks.
ALTER ROLE :"daemon_role" SET idle_in_transaction_session_timeout = '10s';
ALTER ROLE :"daemon_role" SET statement_timeout = '60s';

GRANT SELECT, INSERT, UPDATE ON
  user_like_post, post_like, user_follow, user_follow_count, sync_batch,
  sync_dead_letter, sync_state
  TO :"daemon_role";
GRANT DELETE ON sync_batch TO :"daemon_role";

GRANT SELECT ON
  user_like_post, post_like, user_follow, user_follow_count, sync_batch,
  sync_dead_letter, sync_state
  TO :"read_role";

COMMIT;
