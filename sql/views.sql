-- SPDX-License-Identifier: MIT
-- For DBAs: what to look at, and how a dead letter is applied after all. After
-- schema.sql and roles.sql. Idempotent: apply it again at will.
--
--   psql -d likesync -f sql/views.sql
--   psql -d likesync -v daemon_role=likesyncd -v read_role=likesync_read -f ...
--
-- The daemon flushes without any of this, so its rights are granted here and not in
-- roles.sql: the read role may read the views; retry_dead_letter, which writes, is
-- for the owner of the tables and whom the owner grants it, and for the daemon's role,
-- which with it may also delete dead letters: likesyncctl deadletter.

\set ON_ERROR_STOP on
\if :{?daemon_role} \else \set daemon_role likesyncd \endif
\if :{?read_role} \else \set read_role likesync_read \endif
SET client_min_messages = warning;

BEGIN;

-- Posts whose count is not that of their rows. No row, in any snapshot, also in
-- the middle of a flush.
CREATE OR REPLACE VIEW like_count_drift AS
SELECT post_id, coalesce(c.like_count, 0) AS like_count,
       coalesce(c.unattributed, 0) AS unattributed,
       coalesce(r.n, 0) AS rows_liked,
       coalesce(c.like_count - c.unattributed, 0) - coalesce(r.n, 0) AS drift
  FROM post_like c
  FULL JOIN (SELECT post_id, count(*) AS n FROM user_like_post
              WHERE status = 1 GROUP BY post_id) r USING (post_id)
 WHERE coalesce(c.like_count - c.unattributed, 0) <> coalesce(r.n, 0);

-- The same for follows: users one of whose counts is not that of the rows.
CREATE OR REPLACE VIEW follow_count_drift AS
SELECT user_id, sum(following)::bigint AS following_count,
       sum(following_rows)::bigint AS rows_following,
       sum(followers)::bigint AS follower_count,
       sum(follower_rows)::bigint AS rows_followers
  FROM (SELECT user_id, following_count AS following, 0 AS following_rows,
               follower_count AS followers, 0 AS follower_rows
          FROM user_follow_count
         UNION ALL
        SELECT user_id, 0, 1, 0, 0 FROM user_follow WHERE status = 1
         UNION ALL
        SELECT followee_id, 0, 0, 0, 1 FROM user_follow WHERE status = 1) each
 GROUP BY user_id
HAVING sum(following) <> sum(following_rows)
    OR sum(followers) <> sum(follower_rows);

-- How far the tables are behind, and who wrote last. age includes the time since
-- updated_at: when that stands still, no daemon is flushing.
CREATE OR REPLACE VIEW flush_lag AS
SELECT s.kind, s.synced_through,
       greatest(now() - s.synced_through, interval '0') AS age,
       s.floor, s.updated_at, b.batch_id AS last_batch,
       b.instance AS written_by, b.n_rows, b.written_at
  FROM sync_state s
  LEFT JOIN LATERAL (SELECT * FROM sync_batch
                      WHERE kind = s.kind
                      ORDER BY written_at DESC LIMIT 1) b ON true;

-- What PostgreSQL refused, in words. COUNT: likes that others added to a counter
-- without rows.
CREATE OR REPLACE VIEW dead_letters AS
SELECT id, kind,
       CASE WHEN delta IS NOT NULL
            THEN 'COUNT ' || to_char(delta, 'FMSG999999999999999999')
            WHEN status IS NULL THEN 'MALFORMED'
            ELSE CASE status WHEN 0 THEN 'UN' ELSE '' END || upper(kind)
       END AS verb,
       CASE kind WHEN 'like' THEN member_id ELSE owner_id END AS user_id,
       CASE kind WHEN 'like' THEN owner_id END AS post_id,
       CASE kind WHEN 'follow' THEN member_id END AS followee_id,
       mtime AS event_time, sqlstate, reason, refused_at,
       now() - refused_at AS age
  FROM sync_dead_letter;

-- One edge with its counters, by the daemon's own statements (they stand in its
-- sources): the guard makes an older state and a replay change nothing, and what
-- the row was before tells the true change. False: the row is not there, or not as
-- new, though there was no error.
CREATE OR REPLACE FUNCTION apply_dead_edge(letter sync_dead_letter)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  -- Assigned from text, whatever the type of the ids.
  post user_like_post.post_id%TYPE;
  liker user_like_post.user_id%TYPE;
  follower user_follow.user_id%TYPE;
  followee user_follow.followee_id%TYPE;
BEGIN
  IF letter.kind = 'like' THEN
    post := letter.owner_id;
    liker := letter.member_id;
    WITH up AS (
      INSERT INTO user_like_post AS t
        (post_id, user_id, status, prev_status, ctime, mtime)
      VALUES (post, liker, letter.status, 0, letter.ctime, letter.mtime)
      ON CONFLICT (post_id, user_id) DO UPDATE SET
        prev_status = t.status, status = excluded.status,
        mtime = excluded.mtime
      WHERE excluded.mtime > t.mtime
         OR (excluded.mtime = t.mtime AND excluded.status <> t.status)
      RETURNING post_id, t.status - t.prev_status AS change
    )
    INSERT INTO post_like AS p (post_id, like_count, mtime)
    SELECT post_id, change, now() FROM up WHERE change <> 0
    ON CONFLICT (post_id) DO UPDATE SET
      like_count = p.like_count + excluded.like_count,
      mtime = excluded.mtime;
    RETURN EXISTS (SELECT FROM user_like_post t
                    WHERE t.post_id = post AND t.user_id = liker
                      AND t.mtime >= letter.mtime);
  END IF;
  follower := letter.owner_id;
  followee := letter.member_id;
  WITH up AS (
    INSERT INTO user_follow AS t
      (user_id, followee_id, status, prev_status, ctime, mtime)
    VALUES (follower, followee, letter.status, 0, letter.ctime, letter.mtime)
    ON CONFLICT (user_id, followee_id) DO UPDATE SET
      prev_status = t.status, status = excluded.status,
      ctime = excluded.ctime, mtime = excluded.mtime
    WHERE excluded.mtime > t.mtime
       OR (excluded.mtime = t.mtime AND excluded.status <> t.status)
    RETURNING user_id, followee_id, t.status - t.prev_status AS change
  ), ends AS (
    SELECT user_id, change AS following, 0 AS followers FROM up
    UNION ALL SELECT followee_id, 0, change FROM up
  )
  INSERT INTO user_follow_count AS c
    (user_id, following_count, follower_count, mtime)
  SELECT user_id, sum(following), sum(followers), now() FROM ends
   GROUP BY user_id
  HAVING sum(following) <> 0 OR sum(followers) <> 0 ORDER BY user_id
  ON CONFLICT (user_id) DO UPDATE SET
    following_count = c.following_count + excluded.following_count,
    follower_count = c.follower_count + excluded.follower_count,
    mtime = excluded.mtime;
  RETURN EXISTS (SELECT FROM user_follow t
                  WHERE t.user_id = follower AND t.followee_id = followee
                    AND t.mtime >= letter.mtime);
END $$;

-- What was added to a post's counter without rows. An operation, not a state: the
-- ledger has the entry that the daemon would have written, so that neither adds it
-- after the other. The entry moves no floor.
CREATE OR REPLACE FUNCTION apply_dead_delta(letter sync_dead_letter)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  post post_like.post_id%TYPE := letter.owner_id;
BEGIN
  WITH ledger AS (
    INSERT INTO sync_batch (batch_id, instance, kind, n_rows, claimed_at)
    VALUES (letter.batch_id || ':' || post, 'retry_dead_letter', letter.kind, 0,
            coalesce((SELECT floor FROM sync_state s
                       WHERE s.kind = letter.kind), to_timestamp(0)))
    ON CONFLICT (batch_id) DO NOTHING RETURNING batch_id
  )
  INSERT INTO post_like AS p (post_id, like_count, unattributed, mtime)
  SELECT post, letter.delta, letter.delta, now() FROM ledger
  ON CONFLICT (post_id) DO UPDATE SET
    like_count = p.like_count + excluded.like_count,
    unattributed = p.unattributed + excluded.unattributed,
    mtime = excluded.mtime;
  RETURN EXISTS (SELECT FROM post_like p WHERE p.post_id = post);
END $$;

-- Applies a dead letter whose cause is mended, and deletes it, in one transaction.
-- Returns what was done; what is still wrong is an error, and leaves the letter.
CREATE OR REPLACE FUNCTION retry_dead_letter(id bigint)
RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  letter sync_dead_letter;
  is_there boolean;
BEGIN
  SELECT * INTO letter FROM sync_dead_letter d
   WHERE d.id = retry_dead_letter.id FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 'there is no such letter (any more)';
  END IF;
  -- As for a flush, for the whole transaction, whatever the role has.
  PERFORM set_config('synchronous_commit', 'on', true);
  BEGIN
    IF letter.kind NOT IN ('like', 'follow') THEN
      RAISE EXCEPTION 'its kind % is unknown', letter.kind;
    ELSIF letter.sqlstate IS NULL AND letter.reason LIKE '%malformed%' THEN
      RAISE EXCEPTION 'what stood in Redis was malformed'
        USING HINT = 'Correct the letter''s ids, status and times, and its'
                     ' reason, or delete it.';
    ELSIF letter.delta IS NOT NULL AND letter.kind = 'like' THEN
      is_there := apply_dead_delta(letter);
    ELSIF num_nulls(letter.member_id, letter.status, letter.ctime,
                    letter.mtime) > 0 THEN
      RAISE EXCEPTION 'it has no member_id, status, ctime or mtime';
    ELSE
      is_there := apply_dead_edge(letter);
    END IF;
    IF NOT is_there THEN
      RAISE EXCEPTION 'the table left it out without an error';
    END IF;
  EXCEPTION
    WHEN serialization_failure OR deadlock_detected OR lock_not_available THEN
      RAISE;                     -- try again: nothing is wrong with the letter
    WHEN OTHERS THEN
      DECLARE
        why_hint text;
      BEGIN
        GET STACKED DIAGNOSTICS why_hint = PG_EXCEPTION_HINT;
        RAISE EXCEPTION USING ERRCODE = SQLSTATE, HINT = why_hint,
          MESSAGE = format('dead letter %s (%s %s %s) is still refused: %s',
                           letter.id, letter.kind, letter.owner_id,
                           letter.member_id, SQLERRM);
      END;
  END;
  DELETE FROM sync_dead_letter d WHERE d.id = letter.id;
  RETURN format('applied: %s %s %s', letter.kind, letter.owner_id,
                coalesce(letter.member_id,
                         to_char(letter.delta, 'FMSG999999999999999999')));
END $$;

REVOKE ALL ON FUNCTION apply_dead_edge(sync_dead_letter),
  apply_dead_delta(sync_dead_letter), retry_dead_letter(bigint) FROM PUBLIC;

SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :'read_role') AS has_reader,
       EXISTS (SELECT FROM pg_roles WHERE rolname = :'daemon_role') AS has_daemon
\gset
\if :has_reader
GRANT SELECT ON like_count_drift, follow_count_drift, flush_lag, dead_letters
  TO :"read_role";
\endif
\if :has_daemon
GRANT EXECUTE ON FUNCTION apply_dead_edge(sync_dead_letter),
  apply_dead_delta(sync_dead_letter), retry_dead_letter(bigint)
  TO :"daemon_role";
GRANT DELETE ON sync_dead_letter TO :"daemon_role";
\endif

COMMIT;
