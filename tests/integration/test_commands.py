# SPDX-License-Identifier: MIT
"""Every line of the table of commands: replies in both protocols over both
kinds of listener, and every kind of bad input."""
import contextlib
import random
import re
import time

import pytest

import harness
from wire import Wire, encode

ID_MAX = 2 ** 63 - 1
PASSWORD = "pass word;1"


class Stack:
    """A daemon for the whole file; each test takes posts of its own."""

    def __init__(self, bed, pg):
        self.redis = bed.redis()
        self.pg = pg
        self.daemon = bed.daemon(self.redis, pg, tcp=True)
        self.keys = self.redis.client()
        self.posts = iter(range(1000, 2 ** 31, 10))

    def wire(self, where="unix"):
        return Wire(self.daemon.socket if where == "unix"
                    else ("127.0.0.1", self.daemon.port))

    def state(self):
        """All that a request could have changed."""
        found = {key: self.keys.dump(key)
                 for key in self.keys.scan_iter(count=1000)
                 if key not in harness.STATE_KEYS}  # checked every 2 s
        tables = [self.pg.query(f"SELECT * FROM {name} ORDER BY 1, 2")
                  for name in ("user_like_post", "post_like",
                               "sync_dead_letter")]
        return found, tables


@pytest.fixture(scope="module")
def stack(session_bed, cluster):
    database = cluster.create_database()
    with harness.Bed(template=session_bed.template) as bed:
        yield Stack(bed, database)
    database.drop()


@pytest.fixture
def post(stack):
    return next(stack.posts)


@pytest.fixture
def wire(stack):
    with stack.wire() as wire:
        yield wire


def own_batches(admin):
    status = admin.execute_command("FLUSHER", "STATUS")
    return status[status.index("batches_own") + 1]


@pytest.fixture
def quiet(stack):
    """The flusher stands still, so that keys change by requests only."""
    with stack.daemon.admin() as admin:
        stack.daemon.drain()
        admin.execute_command("FLUSHER", "PAUSE")
        # Also a claim that was under way has ended, and nothing is on record.
        harness.wait_for(lambda: own_batches(admin) == 0 and
                         not stack.keys.exists(*(
                             f"likesync:{name}:{kind}"
                             for name in ("batches", "again")
                             for kind in ("like", "follow"))), 30, "rest")
        # What reads of totals leave for some seconds would end meanwhile.
        stack.keys.delete(*(f"likesync:{name}:{kind}"
                            for name in ("hold", "fill")
                            for kind in ("like", "follow")))
        yield
        admin.execute_command("FLUSHER", "RESUME")


def words(line):
    return line.split()


# ---- LIKE, UNLIKE, LIKED, LIKECOUNT ----

@pytest.mark.parametrize("proto", [2, 3])
@pytest.mark.parametrize("where", ["unix", "tcp"])
def test_replies_of_the_like_commands(stack, post, where, proto):
    other = post + 1
    table = [
        (f"LIKE 7 {post}", b":1\r\n"),
        (f"LIKE 7 {post}", b":0\r\n"),
        (f"like 7 {post}", b":0\r\n"),
        (f"LIKE 8 {post} WITHCOUNT", b"*2\r\n:1\r\n:2\r\n"),
        (f"LIKE 8 {post} withcount", b"*2\r\n:0\r\n:2\r\n"),
        (f"LIKED 7 {post} {other} {post}", b"*3\r\n:1\r\n:0\r\n:1\r\n"),
        (f"LIKECOUNT {post} {other}", b"*2\r\n:2\r\n:0\r\n"),
        (f"UNLIKE 7 {post} WITHCOUNT", b"*2\r\n:1\r\n:1\r\n"),
        (f"UNLIKE 7 {post}", b":0\r\n"),
        (f"UNLIKE 9 {post}", b":0\r\n"),
        (f"LIKED 7 {post}", b"*1\r\n:0\r\n"),
        (f"LIKED 8 {post}", b"*1\r\n:1\r\n"),
        (f"LIKECOUNT {post}", b"*1\r\n:1\r\n"),
        (f"LIKE 7 {post} AT 1289192400.5 WITHCOUNT", b"*2\r\n:0\r\n:1\r\n"),
        (f"LIKE 7 {other} WITHCOUNT AT 1289192400", b"*2\r\n:1\r\n:1\r\n"),
    ]
    with stack.wire(where) as wire:
        wire.call("HELLO", proto)
        for line, expected in table:
            assert wire.call(*words(line)) == expected, line
        stack.daemon.drain()
        # The same from what is durable.
        assert wire.call("LIKED", 8, post, other) == b"*2\r\n:1\r\n:0\r\n"
        assert wire.call("LIKECOUNT", post, other) == b"*2\r\n:1\r\n:1\r\n"
    assert stack.pg.query(
        "SELECT user_id, status FROM user_like_post WHERE post_id = %s"
        " AND user_id < 9 ORDER BY 1", post) == [(7, 0), (8, 1)]
    harness.check_exact(stack.pg)


def test_all_kinds_of_connections_at_the_same_time(stack, post):
    """Unix and TCP, RESP2 and RESP3, inline and not, each with requests of
    the others under way."""
    wires = [stack.wire("unix"), stack.wire("tcp"), stack.wire("unix"),
             stack.wire("tcp")]
    for wire in wires[2:]:
        wire.call("HELLO", 3)
    for number, wire in enumerate(wires):
        for user in range(50):
            pair = (1000 * number + user, post)
            wire.send(encode("LIKE", *pair) if user % 2 else
                      b"LIKE %d %d\r\n" % pair)
            wire.send(encode("ECHO", user))
    for wire in wires:
        for user in range(50):
            assert wire.read() == b":1\r\n"
            assert wire.read() == b"$%d\r\n%d\r\n" % (len(str(user)), user)
    assert wires[0].call("LIKECOUNT", post) == b"*1\r\n:200\r\n"
    for wire in wires:
        wire.close()


def test_inline_requests(wire, post):
    wire.send(b"LIKE 7 %d\r\nlike \"7\" '%d' WITHCOUNT\n\r\nPING\r\n"
              % (post, post))
    assert wire.read() == b":1\r\n"
    assert wire.read() == b"*2\r\n:0\r\n:1\r\n"
    assert wire.read() == b"+PONG\r\n"


def test_a_pipeline_is_answered_in_order(wire, post):
    """Likes that wait for a lookup, errors, and requests that are answered
    at once, in one write; events of one pair take effect in order."""
    requests, expected = [], []
    for user in range(200):
        requests += [encode("LIKE", user, post), encode("LIKE", user, post),
                     encode("UNLIKE", user, post), encode("NOPE"),
                     encode("UNLIKE", user, post), encode("ECHO", user),
                     encode("LIKE", user, post)]
        echo = b"$%d\r\n%d\r\n" % (len(str(user)), user)
        nope = b"-ERR unknown command 'NOPE', with args beginning with: \r\n"
        expected += [b":1\r\n", b":0\r\n", b":1\r\n", nope, b":0\r\n", echo,
                     b":1\r\n"]
    wire.send(b"".join(requests))
    assert [wire.read() for _ in expected] == expected
    assert wire.call("LIKECOUNT", post) == b"*1\r\n:200\r\n"


def test_a_pipeline_reads_its_own_writes(wire, post):
    """Reads come after the writes before them in the pipeline, also those
    that wait for a lookup, and while the flusher works."""
    seed = 1
    rng = random.Random(seed)
    print("seed", seed)
    posts = [post, post + 1]
    liked = {each: set() for each in posts}
    for _ in range(60):
        requests, expected = [], []
        for _ in range(5):
            user, each = rng.randrange(6), rng.choice(posts)
            kind = rng.choice(("LIKE", "UNLIKE"))
            was = user in liked[each]
            (liked[each].add if kind == "LIKE" else liked[each].discard)(user)
            requests.append(encode(kind, user, each))
            expected.append(b":%d\r\n" % (was != (kind == "LIKE")))
        for user in range(6):
            requests.append(encode("LIKED", user, *posts))
            expected.append(b"*2\r\n" + b"".join(
                b":%d\r\n" % (user in liked[p]) for p in posts))
        requests.append(encode("LIKECOUNT", *posts))
        expected.append(b"*2\r\n" + b"".join(
            b":%d\r\n" % len(liked[p]) for p in posts))
        wire.send(b"".join(requests))
        assert [wire.read() for _ in expected] == expected


def test_leading_zeros_are_dropped(stack, wire, post):
    assert wire.call("LIKE", "0007", f"000{post}") == b":1\r\n"
    assert wire.call("LIKE", 7, post) == b":0\r\n"
    assert wire.call("LIKED", "07", f"0{post}") == b"*1\r\n:1\r\n"
    assert wire.call("LIKECOUNT", f"00{post}") == b"*1\r\n:1\r\n"
    assert wire.call("LIKE", "000000000000", post) == b":1\r\n"
    stack.daemon.drain()
    assert stack.pg.query(
        "SELECT user_id FROM user_like_post WHERE post_id = %s ORDER BY 1",
        post) == [(0,), (7,)]


def test_the_largest_ids(stack, wire):
    assert wire.call("LIKE", ID_MAX, ID_MAX) == b":1\r\n"
    assert wire.call("LIKED", ID_MAX, ID_MAX, ID_MAX - 1) == \
        b"*2\r\n:1\r\n:0\r\n"
    assert wire.call("LIKECOUNT", ID_MAX) == b"*1\r\n:1\r\n"
    stack.daemon.drain()
    assert stack.pg.query(
        "SELECT post_id, user_id, status FROM user_like_post"
        " WHERE post_id = %s", ID_MAX) == [(ID_MAX, ID_MAX, 1)]
    # From the tables, too.
    stack.keys.delete(f"post_user_like_{ID_MAX}_{ID_MAX}")
    assert wire.call("LIKED", ID_MAX, ID_MAX) == b"*1\r\n:1\r\n"


def test_many_posts_in_one_request(wire, post):
    assert wire.call("LIKE", 7, post + 3) == b":1\r\n"
    posts = range(post, post + 1000)
    assert wire.call("LIKED", 7, *posts) == \
        b"*1000\r\n" + b":0\r\n" * 3 + b":1\r\n" + b":0\r\n" * 996
    assert wire.call("LIKECOUNT", *posts) == \
        b"*1000\r\n" + b":0\r\n" * 3 + b":1\r\n" + b":0\r\n" * 996


# ---- client times ----

def row(stack, post, user=7):
    return stack.pg.query(
        "SELECT status, extract(epoch FROM mtime)::float8"
        " FROM user_like_post WHERE post_id = %s AND user_id = %s", post,
        user)


@pytest.mark.parametrize("where", ["dirty", "clean", "expired"])
def test_an_older_client_time_is_ignored(stack, wire, post, where):
    """Wherever the newer state is: not yet flushed, flushed and cached, in
    PostgreSQL only."""
    then = 1289192400.25
    key = f"post_user_like_{post}_7"
    assert wire.call("LIKE", 7, post, "AT", then) == b":1\r\n"
    if where != "dirty":
        stack.daemon.drain()
    if where == "expired":
        stack.keys.delete(key)
    assert wire.call("UNLIKE", 7, post, "AT", then - 0.000001) == b":0\r\n"
    assert wire.call("UNLIKE", 7, post, "AT", then) == b":0\r\n"
    assert wire.call("UNLIKE", 7, post, "AT", 0) == b":0\r\n"
    assert wire.call("LIKED", 7, post) == b"*1\r\n:1\r\n"
    assert wire.call("LIKECOUNT", post) == b"*1\r\n:1\r\n"
    stack.daemon.drain()
    assert row(stack, post) == [(1, then)]
    assert wire.call("UNLIKE", 7, post, "AT", then + 0.000001) == b":1\r\n"
    stack.daemon.drain()
    assert row(stack, post)[0][0] == 0
    assert wire.call("LIKECOUNT", post) == b"*1\r\n:0\r\n"
    harness.check_exact(stack.pg)


def test_a_time_a_little_ahead_is_taken(stack, wire, post):
    now = time.time()
    assert wire.call("LIKE", 7, post, "AT", f"{now + 59:.6f}") == b":1\r\n"
    # What the server says now is older than what the client said.
    assert wire.call("UNLIKE", 7, post, "AT", f"{now:.6f}") == b":0\r\n"
    assert wire.call("UNLIKE", 7, post) == b":1\r\n"
    stack.daemon.drain()
    status, mtime = row(stack, post)[0]
    assert status == 0 and now + 58 < mtime < now + 61


# ---- bad input ----

FUTURE = "in 61 s"
BAD = [
    ("LIKE", "wrong number of arguments for 'like' command"),
    ("LIKE 7", "wrong number of arguments for 'like' command"),
    ("UNLIKE 7", "wrong number of arguments for 'unlike' command"),
    ("LIKED 7", "wrong number of arguments for 'liked' command"),
    ("LIKECOUNT", "wrong number of arguments for 'likecount' command"),
    ("FLUSHER", "wrong number of arguments for 'flusher' command"),
    ("LIKE x 42", "invalid user id 'x': expected a decimal from 0 to"),
    ("LIKE 7 x", "invalid post id 'x': expected a decimal from 0 to"),
    ("LIKE -7 42", "invalid user id '-7': expected a decimal"),
    ("LIKE 7 -0", "invalid post id '-0': expected a decimal"),
    ("LIKE 7 +1", "invalid post id '\\+1': expected a decimal"),
    ("LIKE 7 1.0", "invalid post id '1.0': expected a decimal"),
    ("LIKE 7 0x1", "invalid post id '0x1': expected a decimal"),
    (f"LIKE 7 {ID_MAX + 1}", f"invalid post id '{ID_MAX + 1}'"),
    (f"UNLIKE {ID_MAX + 1} 7", f"invalid user id '{ID_MAX + 1}'"),
    ("LIKE 7 99999999999999999999999", "invalid post id '9999"),
    (["LIKE", "", "42"], "invalid user id '': expected a decimal"),
    (["LIKE", "7", ""], "invalid post id '': expected a decimal"),
    (["LIKE", "7", "4 2"], "invalid post id '4 2': expected a decimal"),
    (["LIKE", "7", b"4\x002"], "invalid post id '4\\?2': expected a dec"),
    (["LIKE", "7", "1" * 5000], r"invalid post id '1+\.\.\.': expected"),
    ("LIKED x 42", "invalid user id 'x'"),
    ("LIKED 7 42 x 43", "invalid post id 'x'"),
    ("LIKECOUNT 42 x", "invalid post id 'x'"),
    ("LIKECOUNT -1", "invalid post id '-1'"),
    ("LIKE 7 42 AT", "AT without a time"),
    ("LIKE 7 42 WITHCOUNT AT", "AT without a time"),
    ("LIKE 7 42 AT noon", "invalid time 'noon': expected Unix seconds"),
    ("LIKE 7 42 AT -1", "invalid time '-1'"),
    ("LIKE 7 42 AT 1e9", "invalid time '1e9'"),
    ("LIKE 7 42 AT 1.", r"invalid time '1\.'"),
    ("LIKE 7 42 AT .5", r"invalid time '\.5'"),
    ("LIKE 7 42 AT nan", "invalid time 'nan'"),
    ("LIKE 7 42 AT 1.2.3", r"invalid time '1\.2\.3'"),
    ("LIKE 7 42 AT 99999999999999999999", "invalid time '9999"),
    (["LIKE", "7", "42", "AT", ""], "invalid time ''"),
    ("LIKE 7 42 AT WITHCOUNT", "invalid time 'WITHCOUNT'"),
    (f"LIKE 7 42 AT {FUTURE}", "AT is more than 60 seconds in the future"),
    (f"UNLIKE 7 42 AT {FUTURE}", "AT is more than 60 seconds in the fut"),
    (f"LIKE 9 42 AT {FUTURE}", "AT is more than 60 seconds in the future"),
    ("LIKE 7 42 COUNT", "unknown option 'COUNT': expected AT unix-time or"),
    ("LIKE 7 42 43", "unknown option '43': expected AT unix-time or WITH"),
    ("LIKE 7 42 WITHCOUNT x", "unknown option 'x'"),
    ("LIKES 7 42", "unknown command 'LIKES', with args beginning with: "
                   "'7' '42'"),
    ("LIK 7 42", "unknown command 'LIK'"),
    ([b"LIKE\x00x", "7", "42"], "unknown command 'LIKE', with args"),
    ("SET a b", "unknown command 'SET', with args"),
    ("DEL post_set", "unknown command 'DEL'"),
    ([""], "unknown command ''"),
    ("CLIENT KILL ID 1", "unknown subcommand 'KILL'"),
    ("CLIENT TRACKING ON", "unknown subcommand 'TRACKING'"),
    ("CLIENT REPLY OFF", "unknown subcommand 'REPLY'"),
    ("CONFIG SET save x", "unknown subcommand 'SET'"),
    ("CONFIG REWRITE", "unknown subcommand 'REWRITE'"),
    (["CLIENT", "SETNAME", "n" * 129], "Client names cannot be longer than "
                                       "128 bytes"),
    ("COMMAND LIST nonsense", "syntax error"),
    ("SELECT 1", "DB index is out of range"),
    ("SELECT x", "value is not an integer or out of range"),
    ("HELLO 4", "unsupported protocol version"),
]


def request_of(line):
    if isinstance(line, list):
        return line
    ahead = f"{time.time() + 61.5:.6f}"
    return words(line.replace(FUTURE, ahead))


@pytest.mark.parametrize("proto", [2, 3])
def test_bad_input_is_explained_and_changes_nothing(stack, quiet, wire,
                                                    proto):
    wire.call("HELLO", proto)
    # With something that could be changed: dirty, and clean.
    assert wire.call("LIKE", 7, 42)[:1] == b":"
    before = stack.state()
    assert before[0]
    for line, expected in BAD:
        reply = wire.call(*request_of(line)).decode()
        code = "NOPROTO" if line == "HELLO 4" else "ERR"
        assert reply.startswith(f"-{code} "), (line, reply)
        assert re.search(expected, reply), (line, reply)
        assert reply.count("\r\n") == 1 and len(reply) < 520, line
    assert stack.state() == before
    assert wire.call("PING") == b"+PONG\r\n"


def test_bad_requests_between_good_ones(stack, wire, post):
    """In one pipeline: the good ones take effect, the bad ones do not."""
    wire.send(encode("LIKE", 7, post) + encode("LIKE", 7, post, "AT")
              + encode("UNLIKE", 7, post, "WITHCOUNTS")
              + encode("UNLIKE", "seven", post)
              + encode("LIKE", 8, post, "WITHCOUNT"))
    replies = [wire.read() for _ in range(5)]
    assert replies[0] == b":1\r\n"
    assert all(reply.startswith(b"-ERR ") for reply in replies[1:4])
    # Its own, and the first one unless that was still being looked up.
    assert replies[4] in (b"*2\r\n:1\r\n:1\r\n", b"*2\r\n:1\r\n:2\r\n")
    assert wire.call("LIKECOUNT", post) == b"*1\r\n:2\r\n"


def test_too_many_events_are_refused_clearly(bed, redis, pg):
    """More than redis.max_queue at a time; what was refused is not there."""
    daemon = bed.daemon(redis, pg, redis_max_queue=10)
    with Wire(daemon.socket) as wire:
        wire.send(b"".join(encode("LIKE", user, 42) for user in range(500)))
        replies = [wire.read() for _ in range(500)]
        taken = replies.count(b":1\r\n")
        assert taken >= 10
        assert set(replies) <= {b":1\r\n", b"-TRYAGAIN not recorded: too "
                                b"many events are waiting\r\n"}
        daemon.drain()
        assert wire.call("LIKECOUNT", 42) == b"*1\r\n:%d\r\n" % taken
    assert {user for user, in pg.query("SELECT user_id FROM user_like_post"
                                       " WHERE status = 1")} == \
        {user for user in range(500) if replies[user] == b":1\r\n"}


@pytest.fixture(scope="module")
def patient(session_bed, cluster):
    """A daemon whose reads may wait for long."""
    database = cluster.create_database()
    with harness.Bed(template=session_bed.template) as bed:
        yield bed.daemon(bed.redis(), database,
                         postgres_lookup_timeout_ms=30000)
    database.drop()


@pytest.mark.parametrize("request_, clients, n", [
    (encode("LIKECOUNT", 42), 3, 1024), (encode("LIKED", 7, 42), 12, 1024),
    (encode("LIKED", 7, *range(1000)), 4, 50)],
    ids=["counts", "states", "pages"])
def test_reads_wait_for_each_other(patient, request_, clients, n):
    """More of them than the backends' queues hold: all are answered."""
    with contextlib.ExitStack() as opened:
        wires = [opened.enter_context(Wire(patient.socket))
                 for _ in range(clients)]
        for wire in wires:
            wire.send(request_ * n)
        heads = {wire.read()[:40] for wire in wires for _ in range(n)}
        assert {head[:1] for head in heads} == {b"*"}, heads
    assert patient.metrics()["likesyncd_reads_waiting"] == 0


def test_too_many_reads_are_refused_clearly(stack):
    before = stack.daemon.metrics()["likesyncd_overloads_total"]
    with stack.wire() as wire:
        wire.send(encode("LIKED", 7, *range(1000)) * 1000)
        heads = [wire.read()[:60] for _ in range(1000)]
    refused = heads.count(b"-TRYAGAIN too many reads are waiting\r\n")
    assert refused > 0
    assert refused + sum(head[:1] == b"*" for head in heads) == 1000
    assert stack.daemon.metrics()["likesyncd_overloads_total"] == \
        before + refused


@pytest.mark.parametrize("options, request_", [
    ({"server_max_args": 64, "server_max_arg_bytes": 1 << 20},
     encode("ECHO", "x" * (1 << 20))),
    ({"server_max_args": 65536, "server_max_arg_bytes": 1024},
     encode("LIKED", *range(2 ** 62, 2 ** 62 + 65535)))],
    ids=["bytes", "args"])
def test_a_request_as_large_as_can_be_configured(bed, redis, pg, options,
                                                 request_):
    daemon = bed.daemon(redis, pg, **options)
    with Wire(daemon.socket) as wire:
        wire.send(request_)
        assert wire.read()[:7] in (b"$104857", b"*65534\r")


def test_counts_at_a_time(bed, redis, pg):
    """One script call reads them all, so it has a bound of its own."""
    daemon = bed.daemon(redis, pg, server_max_args=2000,
                        server_max_arg_bytes=1024)
    with Wire(daemon.socket) as wire:
        assert wire.call("LIKECOUNT", *range(1024)) == \
            b"*1024\r\n" + 1024 * b":0\r\n"
        assert wire.call("LIKECOUNT", *range(1025)) == \
            b"-ERR too many posts: expected at most 1024\r\n"


# ---- FLUSHER ----

def test_the_flusher_answers_on_its_own_listener_only(stack, quiet, wire):
    before = stack.state()
    for line in ("FLUSHER STATUS", "FLUSHER RESUME", "FLUSHER DRAIN",
                 "flusher nonsense"):
        reply = wire.call(*words(line)).decode()
        assert reply.startswith(
            "-NOPERM this user has no permissions to run the 'flusher' "
            "command") and "admin" in reply, line
    with stack.daemon.admin() as admin:
        assert admin.execute_command("FLUSHER", "STATUS")
    assert stack.state() == before


@pytest.mark.parametrize("proto", [2, 3])
def test_flusher_replies(stack, wire, post, proto):
    with Wire(stack.daemon.admin_socket) as admin:
        admin.call("HELLO", proto)
        assert admin.call("FLUSHER", "PAUSE") == b"+OK\r\n"
        assert wire.call("LIKE", 7, post) == b":1\r\n"
        head = b"%31\r\n" if proto == 3 else b"*62\r\n"
        status = admin.call("FLUSHER", "STATUS")
        assert status.startswith(head + b"$7\r\nversion\r\n")
        assert b"$7\r\nflusher\r\n$6\r\npaused\r\n" in status
        reply = admin.call("FLUSHER", "DRAIN")
        assert reply.startswith(b"-ERR ") and b"paused" in reply
        assert stack.keys.sismember("post_set", post)
        assert admin.call("flusher", "resume") == b"+OK\r\n"
        assert admin.call("FLUSHER", "DRAIN", 30000) == b"+OK\r\n"
        assert row(stack, post)[0][0] == 1
        assert admin.call("FLUSHER", "DRAIN") == b"+OK\r\n"
        assert b"$7\r\nrunning\r\n" in admin.call("FLUSHER", "STATUS")
        # The admin listener takes the other commands, too.
        assert admin.call("LIKED", 7, post) == b"*1\r\n:1\r\n"


@pytest.mark.parametrize("line, expected", [
    ("FLUSHER DRAIN 0", "expected milliseconds from 1 to"),
    ("FLUSHER DRAIN -5", "expected milliseconds from 1 to"),
    ("FLUSHER DRAIN soon", "expected milliseconds from 1 to"),
    ("FLUSHER DRAIN 99999999999", "expected milliseconds from 1 to"),
    ("FLUSHER DRAIN 1 2", "wrong number of arguments for 'flusher.drain'"),
    ("FLUSHER STOP", "unknown subcommand 'STOP'. Try FLUSHER HELP"),
    ("FLUSHER PAUSE now", "wrong number of arguments for 'flusher.pause'"),
    ("FLUSHER RESUME now", "wrong number of arguments for 'flusher.resume'"),
    ("FLUSHER STATUS now", "wrong number of arguments for 'flusher.status'"),
    ("VERIFY START now", "unknown option 'now': expected REPAIR"),
    ("VERIFY START REPAIR now", "wrong number of arguments for 'verify.start"),
])
def test_bad_flusher_requests(stack, line, expected):
    with Wire(stack.daemon.admin_socket) as admin:
        reply = admin.call(*words(line)).decode()
        assert reply.startswith("-ERR ") and re.search(expected, reply)
        assert b"$7\r\nrunning\r\n" in admin.call("FLUSHER", "STATUS")


def test_a_drain_says_when_its_time_is_over(bed, redis, pg):
    """A lock keeps the rows from being written; once it is gone they are."""
    daemon = bed.daemon(redis, pg)
    blocker = pg.connect()
    blocker.autocommit = False
    blocker.cursor().execute("LOCK TABLE user_like_post IN EXCLUSIVE MODE")
    with Wire(daemon.socket) as wire:
        assert wire.call("LIKE", 7, 42) == b":1\r\n"
    with Wire(daemon.admin_socket) as admin:
        reply = admin.call("FLUSHER", "DRAIN", 50)
        assert reply.startswith(b"-TIMEOUT ")
        blocker.rollback()
        blocker.close()
        assert admin.call("FLUSHER", "DRAIN", 30000) == b"+OK\r\n"
    assert pg.value("SELECT count(*) FROM user_like_post") == 1


# ---- connection commands; test_redis_words.py compares them with Redis ----

def test_reset_makes_a_connection_as_new(wire):
    wire.call("HELLO", 3, "SETNAME", "me")
    assert wire.call("RESET") == b"+RESET\r\n"
    assert wire.call("CLIENT", "GETNAME") == b"$-1\r\n"


def test_quit_answers_what_came_before_it(stack, post):
    with stack.wire() as wire:
        wire.send(encode("LIKE", 7, post) + encode("QUIT") + encode("PING"))
        assert wire.read() == b":1\r\n"
        assert wire.read() == b"+OK\r\n"
        assert wire.closed()


def test_client_subcommands(stack, wire):
    with stack.wire("tcp") as other:
        first = int(wire.call("CLIENT", "ID")[1:])
        second = int(other.call("CLIENT", "ID")[1:])
        assert first != second
        assert wire.call("CLIENT", "SETNAME", "me") == b"+OK\r\n"
        assert wire.call("CLIENT", "SETINFO", "LIB-NAME", "lib") == b"+OK\r\n"
        assert wire.call("CLIENT", "SETINFO", "lib-ver", "1.2") == b"+OK\r\n"
        assert wire.call("CLIENT", "SETINFO", "COLOUR", "red") == \
            b"-ERR Unrecognized option 'COLOUR'\r\n"
        assert wire.call("CLIENT", "SETINFO", "LIB-NAME", "a b") == \
            b"-ERR LIB-NAME cannot contain spaces, newlines or special " \
            b"characters.\r\n"
        info = wire.call("CLIENT", "INFO").decode()
        assert f"id={first} " in info and f"id={second} " not in info
        assert " name=me " in info and " lib-name=lib " in info
        assert " lib-ver=1.2 " in info and " resp=2 " in info
        listed = wire.call("CLIENT", "LIST").decode()
        assert f"id={first} " in listed and f"id={second} " in listed
        wire.call("HELLO", 3)
        assert wire.call("CLIENT", "LIST").startswith(b"=")


def test_names_end_where_they_say(wire):
    """Not at a NUL."""
    assert wire.call("CONFIG", "GET", b"save\x00x") == b"*0\r\n"
    assert wire.call("INFO", b"clients\x00x") == b"$0\r\n\r\n"
    assert wire.call("COMMAND", "DOCS", b"ping\x00x") == b"*0\r\n"
    assert wire.call(b"PING\x00" + b"x" * 60000)[:24] == \
        b"-ERR unknown command 'PI"


def test_info_is_what_clients_wait_for(wire):
    text = wire.call("INFO").decode()
    for field in ("redis_version", "redis_mode", "role", "loading",
                  "connected_clients", "likesyncd_version", "run_id",
                  "uptime_in_seconds", "process_id"):
        assert re.search(rf"^{field}:\S+\r$", text, re.M), field
    assert "loading:0\r\n" in text and "role:master\r\n" in text
    server = wire.call("INFO", "server").decode()
    assert "redis_version:" in server and "loading:" not in server
    both = wire.call("INFO", "Server", "PERSISTENCE").decode()
    assert "redis_version:" in both and "loading:0" in both


# ---- AUTH ----

@pytest.fixture(scope="module")
def locked(session_bed, cluster, tmp_path_factory):
    """A daemon with a password."""
    file = tmp_path_factory.mktemp("secret") / "password"
    file.write_text(PASSWORD + "\n")
    database = cluster.create_database()
    with harness.Bed(template=session_bed.template) as bed:
        redis = bed.redis()
        daemon = bed.daemon(redis, database, wait=None, tcp=True,
                            server_password_file=file,
                            server_auth_delay_ms=0)
        daemon.wait_up(lambda: daemon.http("/healthz")[0] == 200 and all(
            daemon.metrics()[f"likesyncd_{name}_up"] == 1
            for name in ("redis", "postgres")))
        yield daemon, redis
    database.drop()


def test_nothing_without_auth(locked):
    daemon, redis = locked
    keys = redis.client()

    def data():
        """All keys but the daemon's own, which come and go by themselves."""
        return {key for key in keys.scan_iter()
                if not key.startswith("likesync:")}

    before = data()
    with Wire(daemon.socket) as wire:
        for line in ("LIKE 7 42", "UNLIKE 7 42", "LIKED 7 42", "LIKECOUNT 42",
                     "LIKE x y", "FLUSHER STATUS", "CLIENT LIST", "COMMAND",
                     "INFO"):
            assert wire.call(*words(line)) == \
                b"-NOAUTH Authentication required.\r\n", line
        assert wire.call("AUTH", "wrong") == \
            b"-WRONGPASS invalid username-password pair or user is " \
            b"disabled.\r\n"
        assert wire.call("LIKE", 7, 42).startswith(b"-NOAUTH")
    assert data() == before
    assert not keys.exists("post_user_like_42_7")
    assert daemon.metrics()["likesyncd_auth_failures_total"] >= 1


def test_quit_and_the_admin_listener_need_no_password(locked):
    daemon, _ = locked
    with Wire(daemon.socket) as wire:
        assert wire.call("QUIT") == b"+OK\r\n"
        assert wire.closed()
    assert daemon.drain()


def test_limits_before_auth(locked):
    """Redis' limits for strangers: 10 arguments of 16 KiB."""
    daemon, _ = locked
    for data, reason in ((b"*11\r\n", b"unauthenticated multibulk length"),
                         (b"*2\r\n$16385\r\n",
                          b"unauthenticated bulk length")):
        with Wire(daemon.socket) as wire:
            wire.send(data)
            assert wire.read() == b"-ERR Protocol error: " + reason + b"\r\n"
            assert wire.closed()
    with Wire(daemon.socket) as wire:
        assert wire.call("AUTH", PASSWORD) == b"+OK\r\n"
        assert wire.call("LIKED", *range(1, 102))[:6] == b"*100\r\n"
