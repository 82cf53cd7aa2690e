-- SPDX-License-Identifier: MIT
-- The indexes of LIKERS and LIKEDPOSTS, for daemons with [like] lists = yes. After
-- schema.sql. Idempotent: apply it again at will.
--
--   psql -d likesync -f sql/likers.sql
--
-- Each is built CONCURRENTLY: daemons go on writing meanwhile. So this is no
-- transaction; a build that was broken off leaves an index that is not valid, which
-- is dropped and built anew. The daemon notices them by itself.
--
-- To be rid of them: DROP INDEX CONCURRENTLY user_like_post_likers,
-- and the same of user_like_post_likedposts.

\set ON_ERROR_STOP on
SET client_min_messages = warning;

SELECT format('DROP INDEX CONCURRENTLY %s', i.indexrelid::regclass)
  FROM pg_index i
 WHERE i.indexrelid IN (to_regclass('user_like_post_likers'),
                        to_regclass('user_like_post_likedposts'))
   AND NOT i.indisvalid \gexec

-- Who likes a post and what a user likes, by time.
CREATE INDEX CONCURRENTLY IF NOT EXISTS user_like_post_likers ON user_like_post
  (post_id, mtime, user_id) WHERE status = 1;
CREATE INDEX CONCURRENTLY IF NOT EXISTS user_like_post_likedposts ON user_like_post
  (user_id, mtime, post_id) WHERE status = 1;
