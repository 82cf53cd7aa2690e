-- SPDX-License-Identifier: MIT
-- In the databases of the fault campaign: every change of a row of user_like_post
-- and user_follow, in the order in which they came; and of sync_state, with what could
-- be seen by then. Not for production.
\set ON_ERROR_STOP on

CREATE TABLE chaos_audit (
  seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind       text NOT NULL,
  actor      bigint NOT NULL,
  object     bigint NOT NULL,
  old_status smallint,
  new_status smallint,
  old_us     bigint,
  new_us     bigint,
  xid        xid8 NOT NULL DEFAULT pg_current_xact_id()
);

CREATE TABLE chaos_through (
  seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind    text NOT NULL,
  us      bigint NOT NULL,
  xid     xid8 NOT NULL DEFAULT pg_current_xact_id(),
  visible pg_snapshot NOT NULL DEFAULT pg_current_snapshot()
);

CREATE FUNCTION chaos_us(t timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT (extract(epoch FROM t) * 1000000)::bigint $$;

-- The trigger's arguments: kind, and the column of the object. It writes with
-- the rights of its owner.
CREATE FUNCTION chaos_audit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
AS $$
DECLARE
  was jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
  now jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
  one jsonb := coalesce(now, was);
BEGIN
  INSERT INTO public.chaos_audit
    (kind, actor, object, old_status, new_status, old_us, new_us)
  VALUES (TG_ARGV[0], (one ->> 'user_id')::bigint, (one ->> TG_ARGV[1])::bigint,
          (was ->> 'status')::smallint, (now ->> 'status')::smallint,
          public.chaos_us((was ->> 'mtime')::timestamptz),
          public.chaos_us((now ->> 'mtime')::timestamptz));
  RETURN NULL;
END $$;

CREATE TRIGGER chaos_audit AFTER INSERT OR UPDATE OR DELETE ON user_like_post
  FOR EACH ROW EXECUTE FUNCTION chaos_audit('like', 'post_id');
CREATE TRIGGER chaos_audit AFTER INSERT OR UPDATE OR DELETE ON user_follow
  FOR EACH ROW EXECUTE FUNCTION chaos_audit('follow', 'followee_id');

CREATE FUNCTION chaos_through() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
AS $$
BEGIN
  INSERT INTO public.chaos_through (kind, us)
  VALUES (NEW.kind, public.chaos_us(NEW.synced_through));
  RETURN NULL;
END $$;

CREATE TRIGGER chaos_through AFTER INSERT OR UPDATE ON sync_state
  FOR EACH ROW EXECUTE FUNCTION chaos_through();
