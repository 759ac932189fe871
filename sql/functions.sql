-- distlock for PostgreSQL: the verbs. One call is one statement and one transaction, of `release` two. Load after
-- schema.sql; loading again replaces them, which is safe while clients run. A function whose arguments or results change needs a new schema version,
-- whose installation drops the old one: CREATE OR REPLACE would leave both.
--
-- How they exclude each other, in every function that takes, frees or queues:
--   1. The lock's row is locked first (FOR NO KEY UPDATE) by a statement of its own. Later statements see what its last
--      owner committed, because in READ COMMITTED each statement has its own snapshot. One statement that locks and
--      decides would decide on a snapshot from before it waited, and grant twice.
--   2. The clock is read after that (clock_timestamp(), never now(), which is the time before the wait).
--   3. Nothing else is waited for but the commit of a renewal or confirmation of the same hold. Those never wait with a
--      row in hand, so no deadlock is possible. Expired and released holds are locked with SKIP LOCKED: a hold whose row
--      a user's transaction has locked (check_in) is not taken over.
--
-- The functions are SECURITY INVOKER: grant SELECT, INSERT, UPDATE, DELETE on the tables to the role.

-- Server time in µs, the unit of tokens.
-- (STABLE as its body is: an SQL function that claims more is not inlined, which costs 25 us a call.)
CREATE OR REPLACE FUNCTION distlock.us(t timestamptz) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN (extract(epoch FROM t) * 1000000)::bigint;

CREATE OR REPLACE FUNCTION distlock.ms(n bigint) RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN n * interval '1 millisecond';

-- The lease (ms) of a grant before its confirmation is at most a second (R4), its TTL 250 ms longer.
CREATE OR REPLACE FUNCTION distlock.short(lease int) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(lease, 1000);

-- The functions below are in plpgsql even where they are one statement: it keeps the plan, while a function in SQL that is
-- not inlined is planned at each call, which made a token cost 155 us.

-- Up to 16 holders; with p_from, all that expire after it: 'client owner token weight since_us remaining_ms state name'.
CREATE OR REPLACE FUNCTION distlock.holders(p_key text, t timestamptz, p_from timestamptz) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT coalesce(array_agg(line), '{}') FROM (
    SELECT concat_ws(' ', h.client, h.owner, h.token, h.weight, distlock.us(h.since),
      greatest(0, ceil(extract(epoch FROM h.expires - t) * 1000))::bigint, h.state, h.name) AS line
    FROM distlock.hold h WHERE h.key = p_key AND h.weight > 0 AND h.expires > p_from
    ORDER BY h.since, h.token, h.owner LIMIT CASE WHEN p_from = '-infinity' THEN 16 END) lines);
END $$;

-- Locks the lock's row, which must exist before anything about the lock is decided or written. Creates it if asked.
CREATE OR REPLACE FUNCTION distlock.lock_row(p_key text, p_create boolean) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    PERFORM FROM distlock.lock l WHERE l.key = p_key FOR NO KEY UPDATE;
    IF FOUND OR NOT p_create THEN RETURN FOUND; END IF;
    INSERT INTO distlock.lock VALUES (p_key, 0, clock_timestamp() + interval '1 minute') ON CONFLICT DO NOTHING;
    IF FOUND THEN RETURN true; END IF;
  END LOOP;
END $$;

-- Returns a new token, above all before: the server's time, or the last token and one (R24). It is remembered for
-- `fence_ttl` after the clock has reached it. With the lock's row locked.
CREATE OR REPLACE FUNCTION distlock.next_token(p_key text, t timestamptz, p_fence_ttl bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE v_us bigint := distlock.us(t); v_token bigint;
BEGIN
  UPDATE distlock.lock l SET token = greatest(l.token + 1, v_us),
    expires = greatest(l.expires, t + distlock.ms(p_fence_ttl + greatest(0, (l.token - v_us) / 1000 + 1)))
  WHERE l.key = p_key RETURNING l.token INTO v_token;
  RETURN v_token;
END $$;

-- Returns the token of a new hold: readers that hold together share the last token (K9), all others get a new one.
CREATE OR REPLACE FUNCTION distlock.token_for(p_key text, p_kind "char", p_weight int, p_capacity int, t timestamptz,
  p_fence_ttl bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_token bigint;
BEGIN
  IF p_kind = 'r' AND p_weight < p_capacity THEN
    SELECT h.token INTO v_token FROM distlock.hold h JOIN distlock.lock l ON l.key = h.key AND l.token = h.token
      WHERE h.key = p_key AND h.kind = 'r' AND h.weight < h.capacity AND h.state <> 'r' LIMIT 1;
  END IF;
  RETURN coalesce(v_token, distlock.next_token(p_key, t, p_fence_ttl));
END $$;

-- Removes what has expired, then grants to the head of the queue while it fits: to the caller for its full TTL, to others
-- for a short one. Returns 'channel payload' for each grant to another client. With the lock's row locked.
CREATE OR REPLACE FUNCTION distlock.serve(p_key text, p_client uuid, p_owner bigint, t timestamptz, p_fence_ttl bigint)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  gone record; q distlock.queue; is_me boolean; v_used int; v_kind "char"; v_ttl int; v_token bigint;
  messages text[] := '{}';
BEGIN
  FOR gone IN
    DELETE FROM distlock.hold h WHERE h.ctid = ANY (ARRAY(
      SELECT e.ctid FROM distlock.hold e WHERE e.key = p_key AND e.expires <= t FOR UPDATE SKIP LOCKED))
    RETURNING h.client, h.state
  LOOP
    -- A grant that expired unconfirmed: this client does not respond, so its other waiters go, too (R6, K13).
    IF gone.state = 'g' AND gone.client <> p_client THEN
      DELETE FROM distlock.queue w WHERE w.key = p_key AND w.client = gone.client;
    END IF;
  END LOOP;
  LOOP
    SELECT * INTO q FROM distlock.queue w WHERE w.key = p_key ORDER BY w.place LIMIT 1;
    EXIT WHEN NOT FOUND;
    -- A live client's listening session holds its liveness lock exclusively, so another session cannot share it.
    IF q.client <> p_client AND pg_try_advisory_xact_lock_shared(q.liveness) THEN
      DELETE FROM distlock.queue w WHERE w.key = p_key AND w.client = q.client;
      CONTINUE;
    END IF;
    IF q.deadline < t THEN
      DELETE FROM distlock.queue w WHERE w.key = p_key AND w.deadline < t;
      CONTINUE;
    END IF;
    SELECT coalesce(sum(h.weight), 0), max(h.kind::text) INTO v_used, v_kind
      FROM distlock.hold h WHERE h.key = p_key AND h.weight > 0;
    IF v_kind <> q.kind THEN -- K16: it acquires again, and learns the kind
      DELETE FROM distlock.queue w WHERE w.key = p_key AND w.place = q.place;
      CONTINUE;
    END IF;
    EXIT WHEN v_used + q.weight > q.capacity;
    is_me := q.client = p_client AND q.owner IS NOT DISTINCT FROM p_owner; -- p_owner may be null
    v_ttl := CASE WHEN is_me THEN q.ttl ELSE distlock.short(q.lease) + 250 END;
    v_token := distlock.token_for(p_key, q.kind, q.weight, q.capacity, t, p_fence_ttl);
    DELETE FROM distlock.queue w WHERE w.key = p_key AND w.place = q.place;
    INSERT INTO distlock.hold VALUES (p_key, q.client, q.owner, v_token, q.kind, CASE WHEN is_me THEN 'h' ELSE 'g' END,
      q.capacity, q.weight, v_ttl, q.liveness, t + distlock.ms(v_ttl), t, q.name);
    IF NOT is_me THEN
      messages := messages || concat_ws(' ', 'distlock:' || q.client, 'granted', q.owner, v_token, distlock.us(t),
        distlock.short(q.lease), q.kind, p_key);
    END IF;
  END LOOP;
  RETURN messages;
END $$;

-- Notifies clients. NOTIFY makes the commit of its transaction hold a lock of the whole server until the commit is on
-- disk, so grants are notified in a transaction of their own, which does not wait for the disk: `CALL release` does that.
-- (In plpgsql, because an SQL function that returns one value runs its last SELECT for the first row only.)
CREATE OR REPLACE FUNCTION distlock.notify(p_messages text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify(split_part(r, ' ', 1), substr(r, strpos(r, ' ') + 1)) FROM unnest(p_messages) r;
END $$;

-- acquire: takes the lock, or queues the owner for it. Idempotent for the same owner.
-- p_liveness: see `hold.liveness`. p_lease, p_ttl, p_wait (0: never queue), p_fence_ttl: ms. p_apply_by: server time in µs.
-- p_selector: null, or that of a call that runs at most once; with p_gap and p_record_ttl in ms.
-- reply: H held, Q queued, B busy, F queue full, W in use as another kind, R has already run, L too late (or cancelled).
-- holders: for Q, B, F, W the holders; for R the record: 'since_us gap_ms token finished_us name'.
-- held_kind, held_capacity: those of the holds beside which it was taken or queued, if there are any.
CREATE OR REPLACE FUNCTION distlock.acquire(p_key text, p_client uuid, p_liveness bigint, p_owner bigint, p_kind "char",
  p_capacity int, p_weight int, p_lease int, p_ttl int, p_wait bigint, p_apply_by bigint, p_fence_ttl bigint,
  p_max_waiters int, p_name text, p_selector text, p_gap bigint, p_record_ttl bigint,
  OUT reply "char", OUT token bigint, OUT server_us bigint, OUT holders text[], OUT held_kind "char", OUT held_capacity int)
LANGUAGE plpgsql AS $$
DECLARE
  t timestamptz; mine distlock.hold; rec distlock.record; v_used int; v_first bigint;
  v_last bigint; v_deadline timestamptz; messages text[];
BEGIN
  PERFORM FROM distlock.lock l WHERE l.key = p_key FOR NO KEY UPDATE; -- lock_row, without its call
  IF NOT FOUND THEN PERFORM distlock.lock_row(p_key, true); END IF;
  t := clock_timestamp();
  server_us := distlock.us(t);
  IF server_us > p_apply_by THEN reply := 'L'; RETURN; END IF; -- R2

  IF p_selector IS NOT NULL THEN
    SELECT * INTO rec FROM distlock.refusing_record(p_key, p_client, p_owner, p_selector, p_gap, p_record_ttl, t, true);
    IF rec.key IS NOT NULL THEN
      reply := 'R';
      holders := ARRAY[concat_ws(' ', distlock.us(rec.since), rec.gap, rec.token, distlock.us(rec.finished), rec.name)];
      RETURN;
    END IF;
  END IF;

  -- The fast path: no call holds the lock or waits for it.
  WITH free AS (
    UPDATE distlock.lock l SET token = greatest(l.token + 1, server_us),
      expires = greatest(l.expires, t + distlock.ms(p_fence_ttl + greatest(0, (l.token - server_us) / 1000 + 1)))
    WHERE l.key = p_key AND NOT EXISTS (SELECT FROM distlock.hold h WHERE h.key = p_key)
      AND NOT EXISTS (SELECT FROM distlock.queue w WHERE w.key = p_key)
    RETURNING l.token)
  INSERT INTO distlock.hold AS h SELECT p_key, p_client, p_owner, f.token, p_kind, 'h', p_capacity, p_weight, p_ttl,
    p_liveness, t + distlock.ms(p_ttl), t, p_name FROM free f
  RETURNING h.token INTO token;
  IF FOUND THEN reply := 'H'; RETURN; END IF;

  messages := distlock.serve(p_key, p_client, p_owner, t, p_fence_ttl);
  IF messages <> '{}' THEN PERFORM distlock.notify(messages); END IF;
  SELECT * INTO mine FROM distlock.hold h WHERE h.key = p_key AND h.client = p_client AND h.owner = p_owner;
  IF mine.state = 'c' THEN reply := 'L'; RETURN; END IF;
  SELECT coalesce(sum(h.weight), 0), max(h.kind::text), max(h.capacity) INTO v_used, held_kind, held_capacity
    FROM distlock.hold h WHERE h.key = p_key AND h.weight > 0;
  IF mine.state IN ('g', 'h') AND mine.expires > t THEN
    UPDATE distlock.hold h SET state = 'h', ttl = p_ttl, expires = t + distlock.ms(p_ttl)
      WHERE h.key = p_key AND h.client = p_client AND h.owner = p_owner;
    reply := 'H';
    token := mine.token;
    RETURN;
  END IF;
  SELECT min(w.place), max(w.place) INTO v_first, v_last FROM distlock.queue w WHERE w.key = p_key;
  IF held_kind <> p_kind THEN
    reply := 'W';
  ELSIF mine.state IS NOT NULL THEN
    reply := 'B'; -- revoked, kept by min_hold, or expired in a transaction that checked in
  ELSIF v_first IS NULL AND v_used + p_weight <= p_capacity THEN
    reply := 'H';
    token := distlock.token_for(p_key, p_kind, p_weight, p_capacity, t, p_fence_ttl);
    INSERT INTO distlock.hold VALUES (p_key, p_client, p_owner, token, p_kind, 'h', p_capacity, p_weight, p_ttl, p_liveness,
      t + distlock.ms(p_ttl), t, p_name);
    RETURN;
  ELSIF p_wait = 0 THEN
    reply := 'B';
  ELSE
    v_deadline := t + distlock.ms(p_wait + 1000);
    UPDATE distlock.queue w SET kind = p_kind, capacity = p_capacity, weight = p_weight, lease = p_lease, ttl = p_ttl,
      liveness = p_liveness, deadline = v_deadline, name = p_name
      WHERE w.key = p_key AND w.client = p_client AND w.owner = p_owner;
    reply := 'Q';
    IF NOT FOUND THEN
      -- Only a queue whose places span the limit can be full. Dead and overdue waiters then make room.
      IF v_last - v_first + 1 >= p_max_waiters OR p_max_waiters = 0 THEN
        IF (SELECT count(*) FROM distlock.queue w WHERE w.key = p_key) >= p_max_waiters THEN
          DELETE FROM distlock.queue w WHERE w.key = p_key AND (w.deadline < t OR w.client IN (
            SELECT d.client FROM (SELECT DISTINCT e.client, e.liveness FROM distlock.queue e WHERE e.key = p_key
              AND e.client <> p_client AND e.liveness IS NOT NULL) d WHERE pg_try_advisory_xact_lock_shared(d.liveness)));
          IF (SELECT count(*) FROM distlock.queue w WHERE w.key = p_key) >= p_max_waiters THEN reply := 'F'; END IF;
        END IF;
      END IF;
      IF reply = 'Q' THEN
        INSERT INTO distlock.queue VALUES (p_key, coalesce(v_last, 0) + 1, p_client, p_owner, p_kind, p_capacity,
          p_weight, p_lease, p_ttl, p_liveness, v_deadline, t, p_name);
        -- The row outlives its waiters.
        UPDATE distlock.lock l SET expires = v_deadline + interval '11 s'
          WHERE l.key = p_key AND l.expires < v_deadline + interval '11 s';
      END IF;
    END IF;
  END IF;
  PERFORM distlock.cut_down(p_key, t);
  holders := distlock.holders(p_key, t, '-infinity');
  -- A place in the queue is not waited for: a server that crashes may forget it, and the waiter acquires again (R5).
  IF messages = '{}' THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
END $$;

-- Shortens holds that a backward step of the clock has lengthened (R21). A cancelled owner is no hold: it stays until the
-- clock has passed the acquire's apply-by.
CREATE OR REPLACE FUNCTION distlock.cut_down(p_key text, t timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE distlock.hold h SET expires = t + distlock.ms(h.ttl)
  WHERE h.key = p_key AND h.weight > 0 AND h.expires > t + distlock.ms(h.ttl) + interval '1 ms';
END $$;

-- acquire_all: takes several mutexes if each is free and has no waiters; otherwise none, and nothing is left. All get the
-- same token. Waits for nothing but a lock's row that another call is creating; keys must be in ascending order, so that no
-- two calls wait for each other there.
-- reply: H all held, B not all are free, L too late.
CREATE OR REPLACE FUNCTION distlock.acquire_all(p_keys text[], p_client uuid, p_liveness bigint, p_owners bigint[], p_ttl int,
  p_apply_by bigint, p_fence_ttl bigint, p_name text, OUT reply "char", OUT token bigint, OUT server_us bigint)
LANGUAGE plpgsql AS $$
DECLARE t timestamptz; k text; n int := cardinality(p_keys);
BEGIN
  reply := 'B';
  PERFORM FROM distlock.lock l WHERE l.key = ANY (p_keys) ORDER BY l.key FOR NO KEY UPDATE SKIP LOCKED;
  FOREACH k IN ARRAY p_keys LOOP
    -- A row that is there and locked by another call is not inserted, and the call has failed.
    INSERT INTO distlock.lock SELECT k, 0, clock_timestamp() + interval '1 minute'
      WHERE NOT EXISTS (SELECT FROM distlock.lock l WHERE l.key = k) ON CONFLICT DO NOTHING;
  END LOOP;
  IF (SELECT count(*) FROM (SELECT FROM distlock.lock l WHERE l.key = ANY (p_keys) FOR NO KEY UPDATE SKIP LOCKED) x) < n
  THEN RETURN; END IF;
  t := clock_timestamp();
  server_us := distlock.us(t);
  IF server_us > p_apply_by THEN reply := 'L'; RETURN; END IF;
  IF EXISTS (SELECT FROM distlock.hold h WHERE h.key = ANY (p_keys))
    OR EXISTS (SELECT FROM distlock.queue w WHERE w.key = ANY (p_keys)) THEN RETURN; END IF;
  SELECT greatest(max(l.token) + 1, server_us) INTO token FROM distlock.lock l WHERE l.key = ANY (p_keys);
  UPDATE distlock.lock l SET token = acquire_all.token,
    expires = greatest(l.expires, t + distlock.ms(p_fence_ttl + greatest(0, (acquire_all.token - server_us) / 1000 + 1)))
    WHERE l.key = ANY (p_keys);
  INSERT INTO distlock.hold SELECT a.key, p_client, a.owner, token, 'm', 'h', 1, 1, p_ttl, p_liveness, t + distlock.ms(p_ttl), t,
    p_name FROM unnest(p_keys, p_owners) AS a(key, owner);
  reply := 'H';
END $$;

-- The core of a release, and of a cancel: removes the owner's hold or queue entry, and grants to the next waiters. Waits
-- only for the lock's row, and never for a transaction that has checked in: such a hold is marked as released, and the
-- next verb after that transaction removes it.
-- p_keep: min_hold, ms. p_cancel_until: 0, or the apply-by (µs) of an acquire of this owner that was not answered. The owner
-- is cancelled until then, whatever was found, and a late acquire changes nothing (R2).
-- p_token, p_selector, p_gap, p_record_ttl: the success of the hold with this token is recorded (P1), or null.
-- Returns the messages to send after the commit.
CREATE OR REPLACE FUNCTION distlock.release_in(p_key text, p_client uuid, p_owner bigint, p_keep int, p_fence_ttl bigint,
  p_cancel_until bigint, p_token bigint, p_selector text, p_gap bigint, p_record_ttl bigint,
  OUT was_held boolean, OUT is_recorded boolean, OUT messages text[])
LANGUAGE plpgsql AS $$
DECLARE t timestamptz; v_state "char"; v_alive boolean;
BEGIN
  was_held := false;
  is_recorded := false;
  PERFORM FROM distlock.lock l WHERE l.key = p_key FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    IF p_cancel_until = 0 THEN RETURN; END IF;
    PERFORM distlock.lock_row(p_key, true);
  END IF;
  IF p_selector IS NOT NULL THEN
    is_recorded := distlock.record_success(p_key, p_client, p_owner, p_token, p_selector, p_gap, p_record_ttl);
  END IF;
  IF p_keep = 0 THEN
    DELETE FROM distlock.hold h WHERE h.ctid = ANY (ARRAY(
      SELECT e.ctid FROM distlock.hold e WHERE e.key = p_key AND e.client = p_client AND e.owner = p_owner
        AND e.weight > 0 FOR UPDATE SKIP LOCKED))
    RETURNING h.expires > clock_timestamp(), h.state INTO v_alive, v_state;
  END IF;
  IF v_state IS NULL THEN
    UPDATE distlock.hold h SET state = 'k', ttl = p_keep, expires = CASE WHEN h.state = 'k'
        THEN least(h.expires, clock_timestamp() + distlock.ms(p_keep)) -- a repeated release keeps it no longer (R20)
        ELSE clock_timestamp() + distlock.ms(p_keep) END
      WHERE h.key = p_key AND h.client = p_client AND h.owner = p_owner AND h.weight > 0
        AND (h.expires > clock_timestamp() OR p_keep = 0)
      RETURNING true, h.state INTO v_alive, v_state;
  END IF;
  was_held := coalesce(v_alive, false);
  IF v_state IS NULL THEN
    DELETE FROM distlock.queue w WHERE w.key = p_key AND w.client = p_client AND w.owner = p_owner;
  END IF;
  IF p_cancel_until > distlock.us(clock_timestamp()) THEN
    INSERT INTO distlock.hold VALUES (p_key, p_client, p_owner, 0, 'm', 'c', 1, 0, 0, null,
      to_timestamp(p_cancel_until / 1e6), clock_timestamp(), '')
    ON CONFLICT DO NOTHING;
  END IF;
  IF EXISTS (SELECT FROM distlock.queue w WHERE w.key = p_key) THEN
    t := clock_timestamp();
    messages := distlock.serve(p_key, p_client, p_owner, t, p_fence_ttl);
  END IF;
END $$;

-- release: the same as a statement of its own. Commits, then notifies. A release that grants nothing and records nothing is
-- not waited for: a server that crashes within the next moment may forget it, and the lock then lasts until its TTL ends.
CREATE OR REPLACE PROCEDURE distlock.release(p_key text, p_client uuid, p_owner bigint, p_keep int, p_fence_ttl bigint,
  p_cancel_until bigint, p_token bigint, p_selector text, p_gap bigint, p_record_ttl bigint, p_lazy boolean,
  INOUT was_held boolean, INOUT is_recorded boolean)
LANGUAGE plpgsql AS $$
DECLARE messages text[];
BEGIN
  SELECT r.was_held, r.is_recorded, r.messages INTO was_held, is_recorded, messages FROM distlock.release_in(p_key, p_client,
    p_owner, p_keep, p_fence_ttl, p_cancel_until, p_token, p_selector, p_gap, p_record_ttl) r;
  IF messages <> '{}' THEN
    COMMIT;
    PERFORM set_config('synchronous_commit', 'off', true), distlock.notify(messages);
  ELSIF p_lazy AND NOT is_recorded AND p_keep = 0 AND p_cancel_until = 0 THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
END $$;

-- confirm: turns a short grant into a hold for the full TTL. Returns the token, or null if the lock is not the owner's.
-- For a once call that has already run, nothing is confirmed: token is null, and `ran` the record.
CREATE OR REPLACE FUNCTION distlock.confirm(p_key text, p_client uuid, p_owner bigint, p_ttl int, p_selector text,
  p_gap bigint, OUT token bigint, OUT server_us bigint, OUT ran text)
LANGUAGE plpgsql AS $$
DECLARE t timestamptz; rec distlock.record;
BEGIN
  IF p_selector IS NOT NULL THEN
    SELECT * INTO rec FROM distlock.refusing_record(p_key, p_client, p_owner, p_selector, p_gap, 0, clock_timestamp(), false);
    IF rec.key IS NOT NULL THEN
      ran := concat_ws(' ', distlock.us(rec.since), rec.gap, rec.token, distlock.us(rec.finished), rec.name);
      RETURN;
    END IF;
  END IF;
  -- The row is locked first, because the clock must be read after a wait for it.
  PERFORM FROM distlock.hold h WHERE h.key = p_key AND h.client = p_client AND h.owner = p_owner FOR NO KEY UPDATE;
  t := clock_timestamp();
  server_us := distlock.us(t);
  UPDATE distlock.hold h SET state = 'h', ttl = p_ttl, expires = t + distlock.ms(p_ttl)
    WHERE h.key = p_key AND h.client = p_client AND h.owner = p_owner AND h.state IN ('g', 'h') AND h.expires > t
    RETURNING h.token INTO token;
END $$;

-- renew: extends a batch of holds, of any locks and kinds. Returns only the failures: the index (from 1), and G gone, R
-- revoked or B (a row that another call has locked: try again). Waits for nothing, and locks no lock's row. The liveness
-- lock is the client's current one: after a reconnect it has another, and without it `revoke` would take a live holder for
-- a dead one.
CREATE OR REPLACE FUNCTION distlock.renew(p_keys text[], p_client uuid, p_owners bigint[], p_tokens bigint[], p_ttls int[],
  p_liveness bigint)
RETURNS TABLE (index int, failure "char") LANGUAGE plpgsql AS $$
DECLARE t timestamptz; done int[];
BEGIN
  t := clock_timestamp();
  WITH mine AS (
    SELECT h.ctid, a.i, a.ttl FROM unnest(p_keys, p_owners, p_tokens, p_ttls) WITH ORDINALITY AS a(key, owner, token, ttl, i)
    JOIN distlock.hold h ON h.key = a.key AND h.client = p_client AND h.owner = a.owner
    WHERE h.token = a.token AND h.state IN ('g', 'h') AND h.expires > t FOR NO KEY UPDATE OF h SKIP LOCKED),
  renewed AS (
    UPDATE distlock.hold h SET ttl = m.ttl, liveness = p_liveness, expires = t + distlock.ms(m.ttl)
      FROM mine m WHERE h.ctid = m.ctid RETURNING m.i)
  SELECT coalesce(array_agg(r.i), '{}') INTO done FROM renewed r;
  IF cardinality(done) = cardinality(p_keys) THEN RETURN; END IF;
  RETURN QUERY
    SELECT a.i::int, CASE WHEN h.token IS NULL OR h.state = 'k' OR h.expires <= t THEN 'G'
      WHEN h.state = 'r' THEN 'R' ELSE 'B' END::"char"
    FROM unnest(p_keys, p_owners, p_tokens) WITH ORDINALITY AS a(key, owner, token, i)
    LEFT JOIN distlock.hold h ON h.key = a.key AND h.client = p_client AND h.owner = a.owner AND h.token = a.token
    WHERE NOT a.i = ANY (done) ORDER BY a.i;
END $$;

-- downgrade: turns a write hold into a read hold with a new token, and grants to the next waiters (K9, K11, K12). Returns
-- the token of the read hold, or null.
CREATE OR REPLACE FUNCTION distlock.downgrade(p_key text, p_client uuid, p_owner bigint, p_token bigint, p_ttl int,
  p_fence_ttl bigint, OUT token bigint, OUT server_us bigint)
LANGUAGE plpgsql AS $$
DECLARE t timestamptz; mine distlock.hold;
BEGIN
  IF NOT distlock.lock_row(p_key, false) THEN RETURN; END IF;
  t := clock_timestamp();
  server_us := distlock.us(t);
  SELECT * INTO mine FROM distlock.hold h WHERE h.key = p_key AND h.client = p_client AND h.owner = p_owner
    AND h.kind = 'r' AND h.state IN ('g', 'h') AND h.expires > t;
  IF mine.weight = mine.capacity AND mine.token = p_token THEN
    token := distlock.next_token(p_key, t, p_fence_ttl);
  ELSIF mine.weight < mine.capacity THEN
    token := mine.token;
  END IF;
  IF token IS NOT NULL THEN
    UPDATE distlock.hold h SET token = downgrade.token, weight = 1, state = 'h', ttl = p_ttl, expires = t + distlock.ms(p_ttl)
      WHERE h.key = p_key AND h.client = p_client AND h.owner = p_owner;
  END IF;
  PERFORM distlock.notify(distlock.serve(p_key, p_client, null, t, p_fence_ttl));
END $$;

-- check_queue: looks after all locks that a client waits for. For each key one row: the holders, and the indexes (from 1)
-- of the owners that hold the lock and of those that neither hold it nor wait. Grants what can be granted. A lock's row is
-- locked only if there seems to be something to do, and not waited for: the call that has it serves the queue.
CREATE OR REPLACE FUNCTION distlock.check_queue(p_client uuid, p_keys text[], p_firsts int[],
  p_owners bigint[], p_fence_ttl bigint)
RETURNS TABLE (server_us bigint, kind "char", capacity int, holders text[], holding int[], missing int[])
LANGUAGE plpgsql AS $$
DECLARE
  t timestamptz; i int; v_key text; q distlock.queue; v_used int; v_kind "char"; v_over boolean; v_owners bigint[];
  v_messages text[] := '{}';
BEGIN
  FOR i IN 1 .. cardinality(p_keys) LOOP
    v_key := p_keys[i];
    v_owners := p_owners[p_firsts[i] : coalesce(p_firsts[i + 1] - 1, cardinality(p_owners))];
    t := clock_timestamp();
    SELECT coalesce(sum(h.weight) FILTER (WHERE h.expires > t), 0), max(h.kind::text) FILTER (WHERE h.weight > 0),
        coalesce(bool_or(h.expires <= t OR h.weight > 0 AND h.expires > t + distlock.ms(h.ttl)), false)
      INTO v_used, v_kind, v_over FROM distlock.hold h WHERE h.key = v_key;
    SELECT * INTO q FROM distlock.queue w WHERE w.key = v_key ORDER BY w.place LIMIT 1;
    IF v_over OR q.key IS NOT NULL AND (v_used + q.weight <= q.capacity OR q.deadline < t OR v_kind <> q.kind
      OR q.client <> p_client AND pg_try_advisory_xact_lock_shared(q.liveness))
    THEN
      PERFORM FROM distlock.lock l WHERE l.key = v_key FOR NO KEY UPDATE SKIP LOCKED;
      IF FOUND THEN
        t := clock_timestamp();
        v_messages := v_messages || distlock.serve(v_key, p_client, null, t, p_fence_ttl);
        PERFORM distlock.cut_down(v_key, t);
      END IF;
    END IF;
    server_us := distlock.us(t);
    SELECT max(h.kind::text)::"char", max(h.capacity) INTO check_queue.kind, check_queue.capacity
      FROM distlock.hold h WHERE h.key = v_key AND h.weight > 0;
    holders := distlock.holders(v_key, t, '-infinity');
    SELECT coalesce(array_agg(o.i::int) FILTER (WHERE h.owner IS NOT NULL), '{}'),
        coalesce(array_agg(o.i::int) FILTER (WHERE h.owner IS NULL AND w.owner IS NULL), '{}')
      INTO holding, missing
      FROM unnest(v_owners) WITH ORDINALITY AS o(owner, i)
      LEFT JOIN distlock.hold h ON h.key = v_key AND h.client = p_client AND h.owner = o.owner AND h.weight > 0
      LEFT JOIN distlock.queue w ON w.key = v_key AND w.client = p_client AND w.owner = o.owner;
    RETURN NEXT;
  END LOOP;
  PERFORM distlock.notify(v_messages);
END $$;

-- revoke: marks the holds with these tokens so that they can no longer be extended, and notifies their holders (R40). With
-- p_delete, removes at once those whose clients are not connected.
-- reply: N no such hold, R revoked, D deleted. token: a newer one.
CREATE OR REPLACE FUNCTION distlock.revoke(p_key text, p_client uuid, p_tokens bigint[], p_delete boolean, p_by text,
  p_fence_ttl bigint, OUT reply "char", OUT token bigint)
LANGUAGE plpgsql AS $$
DECLARE t timestamptz; h distlock.hold; messages text[] := '{}'; v_new boolean := false; v_gone boolean;
BEGIN
  reply := 'N';
  IF NOT distlock.lock_row(p_key, false) THEN RETURN; END IF;
  t := clock_timestamp();
  FOR h IN SELECT * FROM distlock.hold x WHERE x.key = p_key AND x.token = ANY (p_tokens) AND x.expires > t AND x.weight > 0
  LOOP
    v_gone := h.state = 'k';
    IF p_delete AND NOT v_gone THEN
      -- Without a liveness lock this is not known. Our own client is connected.
      v_gone := h.client <> p_client AND coalesce(pg_try_advisory_xact_lock_shared(h.liveness), false);
    END IF;
    v_new := v_new OR h.state <> 'r';
    IF v_gone THEN
      -- Not waited for: the row of a transaction that checked in ends with its TTL.
      UPDATE distlock.hold x SET state = 'k', expires = t
        WHERE x.key = p_key AND x.client = h.client AND x.owner = h.owner;
      IF reply = 'N' THEN reply := 'D'; END IF;
    ELSE
      IF h.state <> 'r' THEN
        UPDATE distlock.hold x SET state = 'r' WHERE x.key = p_key AND x.client = h.client AND x.owner = h.owner;
        -- With the owner, because NOTIFY drops equal messages of one transaction, and readers share a token.
        messages := messages || concat_ws(' ', 'distlock:' || h.client, 'revoked', h.owner, h.token, p_key || chr(10) || p_by);
      END IF;
      reply := 'R';
    END IF;
  END LOOP;
  IF reply <> 'N' THEN
    token := CASE WHEN v_new THEN distlock.next_token(p_key, t, p_fence_ttl)
      ELSE (SELECT l.token FROM distlock.lock l WHERE l.key = p_key) END;
  END IF;
  messages := messages || distlock.serve(p_key, p_client, null, t, p_fence_ttl);
  PERFORM distlock.cut_down(p_key, t), distlock.notify(messages);
END $$;

-- inspect: reads only. kind: that of the holds, or of the first waiter.
CREATE OR REPLACE FUNCTION distlock.inspect(p_key text, p_max_listed int, OUT server_us bigint, OUT kind "char",
  OUT capacity int, OUT holders text[], OUT queue_length bigint, OUT waiters text[], OUT last_token bigint, OUT ran text)
LANGUAGE plpgsql STABLE AS $$
DECLARE t timestamptz := clock_timestamp();
BEGIN
  server_us := distlock.us(t);
  SELECT max(h.kind::text)::"char", max(h.capacity) INTO inspect.kind, inspect.capacity
    FROM distlock.hold h WHERE h.key = p_key AND h.weight > 0 AND h.expires > t;
  IF inspect.kind IS NULL THEN
    SELECT w.kind, w.capacity INTO inspect.kind, inspect.capacity
      FROM distlock.queue w WHERE w.key = p_key ORDER BY w.place LIMIT 1;
  END IF;
  holders := distlock.holders(p_key, t, t);
  SELECT count(*) INTO queue_length FROM distlock.queue w WHERE w.key = p_key;
  SELECT coalesce(array_agg(concat_ws(' ', w.client, distlock.us(w.since), w.name) ORDER BY w.place), '{}') INTO waiters
    FROM (SELECT * FROM distlock.queue w WHERE w.key = p_key ORDER BY w.place LIMIT p_max_listed) w;
  SELECT nullif(l.token, 0) INTO last_token FROM distlock.lock l WHERE l.key = p_key;
  SELECT concat_ws(' ', distlock.us(r.since), r.gap, r.token, distlock.us(r.finished), r.name) INTO ran
    FROM distlock.record r WHERE r.key = p_key AND r.selector = '' AND r.expires > t;
END $$;

-- list: the keys of all taken locks that begin with a prefix.
CREATE OR REPLACE FUNCTION distlock.list(p_prefix text) RETURNS SETOF text LANGUAGE sql STABLE AS $$
  SELECT DISTINCT h.key FROM distlock.hold h
  WHERE h.key >= p_prefix AND starts_with(h.key, p_prefix) AND h.expires > clock_timestamp() AND h.weight > 0
$$;

-- Returns the record that rejects a run of this owner, or a row of nulls. A hold that was granted to it is judged by its
-- acquisition (P21). p_is_acquire: the record lasts for this call's period, and one from the future is lowered (P5, P8).
CREATE OR REPLACE FUNCTION distlock.refusing_record(p_key text, p_client uuid, p_owner bigint, p_selector text, p_gap bigint,
  p_record_ttl bigint, t timestamptz, p_is_acquire boolean) RETURNS distlock.record LANGUAGE plpgsql AS $$
DECLARE rec distlock.record; v_start timestamptz;
BEGIN
  SELECT least(h.since, t) INTO v_start FROM distlock.hold h
    WHERE h.key = p_key AND h.client = p_client AND h.owner = p_owner AND h.state IN ('g', 'h') AND h.expires > t;
  IF v_start IS NULL AND NOT p_is_acquire THEN RETURN null; END IF;
  SELECT * INTO rec FROM distlock.record r WHERE r.key = p_key AND r.selector = p_selector AND r.expires > t;
  IF rec.key IS NULL THEN RETURN null; END IF;
  IF p_is_acquire AND rec.since > t THEN
    rec.since := t;
    rec.expires := greatest(rec.expires, t + distlock.ms(p_record_ttl));
    UPDATE distlock.record r SET since = rec.since, expires = rec.expires WHERE r.key = p_key AND r.selector = p_selector;
  END IF;
  IF rec.since + distlock.ms(p_gap) <= coalesce(v_start, t) THEN RETURN null; END IF;
  IF p_is_acquire THEN
    UPDATE distlock.record r SET expires = rec.since + distlock.ms(p_record_ttl)
      WHERE r.key = p_key AND r.selector = p_selector AND r.expires < rec.since + distlock.ms(p_record_ttl);
    UPDATE distlock.lock l SET expires = rec.since + distlock.ms(p_record_ttl)
      WHERE l.key = p_key AND l.expires < rec.since + distlock.ms(p_record_ttl);
  END IF;
  RETURN rec;
END $$;

-- Records the success of the hold with this token (P1, P6, P8). Returns whether it is recorded, now or before.
CREATE OR REPLACE FUNCTION distlock.record_success(p_key text, p_client uuid, p_owner bigint, p_token bigint,
  p_selector text, p_gap bigint, p_record_ttl bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE t timestamptz := clock_timestamp();
BEGIN
  INSERT INTO distlock.record AS r SELECT p_key, p_selector, least(h.since, t), p_gap, h.token, t,
      t + distlock.ms(p_record_ttl), h.name
    FROM distlock.hold h WHERE h.key = p_key AND h.client = p_client AND h.owner = p_owner AND h.token = p_token
      AND h.state IN ('g', 'h') AND h.expires > t
  ON CONFLICT (key, selector) DO UPDATE SET since = excluded.since, gap = excluded.gap, token = excluded.token,
    finished = excluded.finished, expires = greatest(r.expires, excluded.expires), name = excluded.name;
  IF NOT FOUND THEN
    RETURN EXISTS (SELECT FROM distlock.record r WHERE r.key = p_key AND r.selector = p_selector AND r.token = p_token);
  END IF;
  UPDATE distlock.lock l SET expires = t + distlock.ms(p_record_ttl)
    WHERE l.key = p_key AND l.expires < t + distlock.ms(p_record_ttl);
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION distlock.delete_record(p_key text, p_selector text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM distlock.record r WHERE r.key = p_key AND r.selector = p_selector AND r.expires > clock_timestamp();
  RETURN FOUND;
END $$;

-- check_in: in the user's transaction. Locks the hold's row until the end of the transaction, so that no call takes the lock
-- over; renewals pass. False: the hold is not, or no longer, the caller's: roll back. The time does not matter: while the
-- row is there, no other call had the lock.
CREATE OR REPLACE FUNCTION distlock.check_in(p_key text, p_client uuid, p_owner bigint, p_token bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE v_state "char";
BEGIN
  SELECT h.state INTO v_state FROM distlock.hold h WHERE h.key = p_key AND h.client = p_client AND h.owner = p_owner
    AND h.token = p_token FOR KEY SHARE;
  RETURN coalesce(v_state IN ('g', 'h'), false);
END $$;

-- sweep: removes what has expired in one random page of two tables. Clients call it now and then: once in 64 acquires and
-- once a minute. Waits for nothing.
CREATE OR REPLACE FUNCTION distlock.sweep() RETURNS int LANGUAGE plpgsql AS $$
DECLARE t timestamptz := clock_timestamp(); p bigint; k text[]; n int;
BEGIN
  p := floor(random() * pg_relation_size('distlock.lock') / current_setting('block_size')::int);
  SELECT array_agg(x.key) INTO k FROM (SELECT l.key FROM distlock.lock l
    WHERE l.ctid >= format('(%s,0)', p)::tid AND l.ctid < format('(%s,0)', p + 1)::tid AND l.expires <= t
    FOR UPDATE SKIP LOCKED) x;
  DELETE FROM distlock.hold h WHERE h.ctid = ANY (ARRAY(
    SELECT e.ctid FROM distlock.hold e WHERE e.key = ANY (k) AND e.expires <= t FOR UPDATE SKIP LOCKED));
  DELETE FROM distlock.queue w WHERE w.key = ANY (k) AND w.deadline < t;
  DELETE FROM distlock.record r WHERE r.key = ANY (k) AND r.expires <= t;
  DELETE FROM distlock.lock l WHERE l.key = ANY (k) AND NOT EXISTS (SELECT FROM distlock.hold h WHERE h.key = l.key)
    AND NOT EXISTS (SELECT FROM distlock.queue w WHERE w.key = l.key)
    AND NOT EXISTS (SELECT FROM distlock.record r WHERE r.key = l.key);
  GET DIAGNOSTICS n = ROW_COUNT;
  p := floor(random() * pg_relation_size('distlock.record') / current_setting('block_size')::int);
  DELETE FROM distlock.record r WHERE r.ctid = ANY (ARRAY(SELECT e.ctid FROM distlock.record e
    WHERE e.ctid >= format('(%s,0)', p)::tid AND e.ctid < format('(%s,0)', p + 1)::tid AND e.expires <= t
    FOR UPDATE SKIP LOCKED));
  RETURN n;
END $$;

-- warm: plans the statements of the verbs in this session, and changes nothing. The first call of a verb in a session takes
-- 10 to 30 ms, with the lock's row in hand: a client runs this on a connection before it uses it, with
-- plan_cache_mode = force_generic_plan (otherwise the plans are made anew five times).
CREATE OR REPLACE FUNCTION distlock.warm() RETURNS void LANGUAGE plpgsql AS $$
DECLARE c uuid := gen_random_uuid(); k text := 'warm:' || c; f bigint := 60000; n bigint := 9000000000000000; v_token bigint;
BEGIN
  -- Not waited for: what is undone still has a commit, and without its standby no client could connect.
  PERFORM set_config('synchronous_commit', 'off', true);
  BEGIN
    SELECT a.token INTO v_token FROM distlock.acquire(k, c, null, 1, 'm', 1, 1, 1000, 1250, 0, n, f, 1, '', null, null, null) a;
    PERFORM distlock.acquire(k, c, null, 2, 'm', 1, 1, 1000, 1250, 1000, n, f, 2, '', null, null, null),
      distlock.acquire(k, c, null, 2, 'm', 1, 1, 1000, 1250, 0, n, f, 1, '', null, null, null),
      distlock.renew(ARRAY[k], c, ARRAY[1::bigint], ARRAY[v_token], ARRAY[1250], null),
      distlock.check_queue(c, ARRAY[k], ARRAY[1], ARRAY[2::bigint], f),
      distlock.release_in(k, c, 1, 0, f, 0, null, null, null, null),
      distlock.confirm(k, c, 2, 1250, null, null), distlock.release_in(k, c, 2, 0, f, 0, null, null, null, null);
    RAISE EXCEPTION USING errcode = 'DLKOK'; -- undo
  EXCEPTION WHEN SQLSTATE 'DLKOK' THEN
    RETURN;
  END;
END $$;
