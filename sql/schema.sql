-- SPDX-License-Identifier: MIT
-- likesyncd's tables, schema version 2. Idempotent: apply it again at will.
--
--   psql -d likesync -f sql/schema.sql
--   psql -d likesync -v user_id_type=uuid -v post_id_type=text -f sql/schema.sql
--
-- The id types must be those of [ids] in likesyncd.ini; the daemon checks them,
-- and the version, at each connect. Text ids compare by bytes (COLLATE "C").

\set ON_ERROR_STOP on
\if :{?user_id_type} \else \set user_id_type bigint \endif
\if :{?post_id_type} \else \set post_id_type bigint \endif
SET client_min_messages = warning;

SELECT CASE :'user_id_type' WHEN 'text' THEN 'text COLLATE "C"'
       ELSE :'user_id_type' END AS user_id,
       CASE :'post_id_type' WHEN 'text' THEN 'text COLLATE "C"'
       ELSE :'post_id_type' END AS post_id,
       :'user_id_type' IN ('bigint', 'uuid', 'text')
       AND :'post_id_type' IN ('bigint', 'uuid', 'text') AS types_known \gset
\if :types_known
\else
\warn 'user_id_type and post_id_type: expected bigint, uuid or text'
DO $$ BEGIN RAISE EXCEPTION 'unknown id type'; END $$;
\endif

BEGIN;

-- One row per user and post, for ever: status 1 liked, 0 taken back.
-- prev_status is what the row held before its last change.
CREATE TABLE IF NOT EXISTS user_like_post (
  post_id     :post_id NOT NULL,
  user_id     :user_id NOT NULL,
  status      smallint NOT NULL CHECK (status IN (0, 1)),
  prev_status smallint NOT NULL DEFAULT 0 CHECK (prev_status IN (0, 1)),
  ctime       timestamptz NOT NULL,
  mtime       timestamptz NOT NULL,
  PRIMARY KEY (post_id, user_id)
) WITH (fillfactor = 90);

-- like_count - unattributed is the number of rows with status 1, in every
-- snapshot. unattributed: what others added to a counter without a row.
-- No index on the counters: keeps updates HOT.
CREATE TABLE IF NOT EXISTS post_like (
  post_id      :post_id PRIMARY KEY,
  like_count   bigint NOT NULL DEFAULT 0,
  unattributed bigint NOT NULL DEFAULT 0,
  mtime        timestamptz NOT NULL
) WITH (fillfactor = 70);

-- One row per pair of users, for ever: status 1 user_id follows followee_id, 0
-- no longer. ctime is when the present follow began, and what lists are sorted
-- by.
CREATE TABLE IF NOT EXISTS user_follow (
  user_id     :user_id NOT NULL,
  followee_id :user_id NOT NULL,
  status      smallint NOT NULL CHECK (status IN (0, 1)),
  prev_status smallint NOT NULL DEFAULT 0 CHECK (prev_status IN (0, 1)),
  ctime       timestamptz NOT NULL,
  mtime       timestamptz NOT NULL,
  PRIMARY KEY (user_id, followee_id)
) WITH (fillfactor = 90);
-- Whom a user follows and who follows a user, by time.
CREATE INDEX IF NOT EXISTS user_follow_following ON user_follow
  (user_id, ctime, followee_id) WHERE status = 1;
CREATE INDEX IF NOT EXISTS user_follow_followers ON user_follow
  (followee_id, ctime, user_id) WHERE status = 1;

-- Numbers of rows with status 1, in every snapshot: following_count those of
-- user_id, follower_count those with it as followee_id.
CREATE TABLE IF NOT EXISTS user_follow_count (
  user_id         :user_id PRIMARY KEY,
  following_count bigint NOT NULL DEFAULT 0,
  follower_count  bigint NOT NULL DEFAULT 0,
  mtime           timestamptz NOT NULL
) WITH (fillfactor = 70);

-- The ledger: which batch, which instance, when, how many rows. claimed_at is
-- Redis' time; no event made by a server before it has a later mtime.
CREATE TABLE IF NOT EXISTS sync_batch (
  batch_id   text PRIMARY KEY,
  instance   text NOT NULL,
  kind       text NOT NULL,
  n_rows     integer NOT NULL,
  claimed_at timestamptz NOT NULL,
  written_at timestamptz NOT NULL DEFAULT now(),
  writes     integer NOT NULL DEFAULT 1
) WITH (fillfactor = 90);
CREATE INDEX IF NOT EXISTS sync_batch_claimed_at ON sync_batch (claimed_at);
CREATE INDEX IF NOT EXISTS sync_batch_written_at ON sync_batch (written_at);

-- Rows that PostgreSQL refused, or that could not be sent to it. member_id and
-- status are NULL for a counter's delta. sqlstate is NULL when the daemon
-- refused the row itself.
CREATE TABLE IF NOT EXISTS sync_dead_letter (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind       text NOT NULL,
  batch_id   text NOT NULL,
  owner_id   text NOT NULL,
  member_id  text,
  status     smallint,
  delta      bigint,
  ctime      timestamptz,
  mtime      timestamptz,
  sqlstate   text,
  reason     text NOT NULL,
  refused_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX IF NOT EXISTS sync_dead_letter_once ON sync_dead_letter
  (batch_id, owner_id, (coalesce(member_id, '')));

-- synced_through: every event acked before this time is in the tables (or in
-- the dead letters). floor: see claimed_at, kept when ledger rows are pruned.
CREATE TABLE IF NOT EXISTS sync_state (
  kind           text PRIMARY KEY,
  synced_through timestamptz NOT NULL,
  floor          timestamptz NOT NULL,
  updated_at     timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

COMMENT ON TABLE sync_state IS 'likesyncd schema version 2';

COMMIT;
