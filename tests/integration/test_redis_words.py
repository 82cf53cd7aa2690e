# SPDX-License-Identifier: MIT
"""The commands of connections, compared with a real Redis byte by byte: good
and bad use, protocol errors, both protocols, before and after AUTH, one by
one, pipelined and inline. It holds with Redis 7.0 and 8.0; what is different
by design stands in DIFFERENT, with the reason."""
import contextlib
import re

import pytest

import harness
from wire import Wire, encode

PASSWORD = "pass word;1"


class Pair:
    """The daemon and a Redis like it: one database, no AOF, no cluster."""

    def __init__(self, bed, database, password=None):
        options = {"server_password_file": password,
                   "server_auth_delay_ms": 0} if password else {}
        self.daemon = bed.daemon(bed.redis(), database, wait=None, tcp=True,
                                 **options)
        self.daemon.wait_up(lambda: self.daemon.http("/healthz")[0] == 200)
        self.redis = bed.redis(databases="1", appendonly="no")
        self.version = self.redis.client().info("server")["redis_version"]
        print("Redis", self.version)
        if password:
            self.redis.client().config_set("requirepass", PASSWORD)

    def pipeline(self, lines):
        """Without refused logins, some of which Redis 8.0 does not answer
        within a pipeline."""
        loses = int(self.version.partition(".")[0]) >= 8
        return [line for line in lines if not loses or
                not {"bob", "wrong"} & set(request_of(line))]

    @contextlib.contextmanager
    def wires(self, where="unix"):
        with Wire(self.redis.socket) as redis, \
                Wire(self.daemon.socket if where == "unix" else
                     ("127.0.0.1", self.daemon.port)) as daemon:
            yield redis, daemon


@pytest.fixture(scope="module")
def pair(session_bed, cluster):
    database = cluster.create_database()
    with harness.Bed(template=session_bed.template) as bed:
        yield Pair(bed, database)
    database.drop()


@pytest.fixture(scope="module")
def locked(session_bed, cluster, tmp_path_factory):
    """Both with a password."""
    file = tmp_path_factory.mktemp("secret") / "password"
    file.write_text(PASSWORD + "\n")
    database = cluster.create_database()
    with harness.Bed(template=session_bed.template) as bed:
        yield Pair(bed, database, file)
    database.drop()


def request_of(line):
    return line.split(" ") if isinstance(line, str) else line


def masked(reply):
    """Without what no two servers have in common: version, id and modules in
    the reply to HELLO; and 7.0 left <proto> out of one error."""
    if reply.startswith((b"*14\r\n$6\r\nserver", b"%7\r\n$6\r\nserver")):
        reply = re.sub(rb"\$\d+\r\n\d+\.\d+\.\d+\r\n", b"VERSION", reply)
        reply = re.sub(rb"\r\nid\r\n:\d+\r\n", b"ID", reply)
        reply = re.sub(rb"modules\r\n.*", b"MODULES", reply, flags=re.S)
    return reply.replace(b"the HELLO <proto> AUTH", b"the HELLO AUTH")


SAME = [
    "PING", "PING hello", "PING a b", ["PING", ""], "ECHO hello", "ECHO",
    "ECHO a b", ["ECHO", b"\x00\r\n\xff"], "SELECT 0", "SELECT 1",
    "SELECT -1", "SELECT x", "SELECT 00", "SELECT -0", "SELECT +0", "SELECT",
    "SELECT 0 0", "SELECT 2147483648", "SELECT -2147483649",
    "SELECT 99999999999999999999", ["SELECT", ""],
    "AUTH", "AUTH x", "AUTH default x", "AUTH bob x", "AUTH a b c",
    "HELLO 4", "HELLO 1", "HELLO 0", "HELLO x", "HELLO 02", "HELLO -1",
    ["HELLO", "3 "], ["HELLO", "N" * 300],
    "HELLO 99999999999999999999", "HELLO 2 NOPE", "HELLO 2 AUTH a",
    "HELLO 2 AUTH bob x", "HELLO 2 SETNAME", "HELLO 2 AUTH default x SETNAME",
    ["HELLO", "2", "SETNAME", "a b"], ["HELLO", "2", "SETNAME", "a\nb"],
    "HELLO 2 SETNAME \xe9", "HELLO 2 SETNAME \xe9 NOPE",
    "HELLO 2 SETNAME \xe9 AUTH bob x", ["HELLO", "2", "N" * 300],
    ["HELLO", "2", b"\x01\xff\r\nx"],
    "CLIENT", "CLIENT NOPE", "CLIENT nope a b", "CLIENT SETNAME",
    "CLIENT SETNAME a b", "CLIENT SETNAME name", "CLIENT GETNAME",
    "CLIENT GETNAME x", "CLIENT ID x", "CLIENT INFO x", "CLIENT HELP x",
    "CLIENT SETNAME \xe9", ["CLIENT", "SETNAME", "a b"],
    ["CLIENT", "SETNAME", "a\nb"], ["CLIENT", "SETNAME", "a" * 100],
    "CLIENT GETNAME", ["CLIENT", "SETNAME", ""], "CLIENT GETNAME",
    ["CLIENT", ""], ["CLIENT", "", "x"], ["CLIENT", "N" * 300],
    ["CLIENT", b"\x01\xff\r\n\x00x"], "CLIENT|ID", "client|id",
    "CLIENT LIST x", "CLIENT LIST NOPE x", "CLIENT LIST TYPE",
    "CLIENT LIST TYPE x", "CLIENT LIST TYPE x y", "CLIENT LIST TYPE master",
    "CLIENT LIST TYPE slave", "CLIENT LIST TYPE replica",
    "CLIENT LIST type PUBSUB", "CLIENT LIST TYPE pubsub x",
    ["CLIENT", "LIST", "TYPE", "a\r\nb"], ["CLIENT", "LIST", "TYPE", "N" * 200],
    "CLIENT LIST ID", "CLIENT LIST ID x", "CLIENT LIST ID 0",
    "CLIENT LIST ID -1", "CLIENT LIST ID 99999999",
    "CLIENT LIST ID 99999999 88888888", "CLIENT LIST ID 99999999 x",
    "CLIENT LIST ID 01", "CLIENT LIST TYPE normal ID 1",
    "CLIENT LIST ID 1 TYPE normal",
    "COMMAND NOPE", "COMMAND COUNT x", "COMMAND HELP x", ["COMMAND", "N" * 300],
    "COMMAND INFO nonsense", "COMMAND INFO client|nope",
    ["COMMAND", "INFO", b"ping\x00x"], ["COMMAND", "INFO", ""],
    "COMMAND DOCS nonsense", ["COMMAND", "DOCS", ""],
    ["COMMAND", "DOCS", b"ping\x00x"], "COMMAND LIST x",
    "COMMAND LIST FILTERBY", "COMMAND LIST FILTERBY x",
    "COMMAND LIST FILTERBY x y", "COMMAND LIST FILTERBY x y z",
    "COMMAND LIST FILTERBY MODULE nonsense",
    "COMMAND LIST FILTERBY ACLCAT nonsense",
    "COMMAND LIST FILTERBY PATTERN nonsense",
    "COMMAND LIST FILTERBY PATTERN pin*", "COMMAND LIST FILTERBY PATTERN PING",
    "COMMAND LIST FILTERBY PATTERN client|getn*",
    "COMMAND GETKEYS", "COMMAND GETKEYS ECHO a", "COMMAND GETKEYS PING a",
    "CONFIG", "CONFIG NOPE", "CONFIG HELP x", "CONFIG GET",
    "CONFIG GET nonsense", "CONFIG GET save", "CONFIG GET SAVE",
    "CONFIG GET appendonly", "CONFIG GET databases", "CONFIG GET maxmemory",
    "CONFIG GET save save", "CONFIG GET sav?", "CONFIG GET SAV*",
    "CONFIG GET [s]ave", "CONFIG GET appendonl[xyz]", "CONFIG GET nonsens*",
    "CONFIG GET databas* nonsense", ["CONFIG", "GET", b"save\x00x"],
    "INFO nonsense", "INFO nonsense more", "READONLY", "READONLY x",
    "RESET x", "PING", "NOPE", "nope", "NOPE a", "nope a b c", ["NOPE", ""],
    [""], ["", "a"], ["NOPE", "a" * 300], ["N" * 300], ["N" * 300, "b" * 300],
    ["NOPE"] + ["abc"] * 60, ["NOPE"] + ["x" * 60] * 4,
    ["NOPE", "a" * 124, "b"], ["NOPE", "a" * 125, "bb", "cc"],
    ["NOPE", "a" * 126, "bb", "cc"], ["NOPE", "a" * 127, "b"],
    ["NOPE", "a" * 128], ["NOPE", "it's", 'q"q'], ["NOPE", "a\r\nb"],
    [b"NO\x00PE", b"a\x00b"], [b"\xff\xfe"], ["NOPE", b"\xff\xfe\x01"],
    [b"PING\x00x"],
]

# Request, the beginning of our reply, and why it is not what Redis says.
NO_SUCH = b"-ERR unknown subcommand '%s'. Try CLIENT HELP.\r\n"
FIXED = b"-ERR unknown subcommand '%s'. Try CONFIG HELP.\r\n"
DIFFERENT = [
    *((f"CLIENT {name}{rest}", NO_SUCH % name.encode(),
       "there is no such thing here, and nobody must wait for it")
      for name, rest in (
          ("TRACKING", " on"), ("TRACKINGINFO", ""), ("CACHING", " yes"),
          ("GETREDIR", ""), ("REPLY", " off"), ("KILL", " x"),
          ("PAUSE", " 1"), ("UNPAUSE", ""), ("UNBLOCK", " 1"),
          ("NO-EVICT", " on"), ("NO-TOUCH", " on"))),
    *((f"CONFIG {name}{rest}", FIXED % name.encode(),
       "the configuration is a file")
      for name, rest in (("SET", " save x"), ("REWRITE", ""),
                         ("RESETSTAT", ""))),
    ("CLIENT SETINFO LIB-NAME lib", b"+OK\r\n", "Redis has it since 7.2"),
    ("CLIENT SETINFO x y", b"-ERR Unrecognized option 'x'\r\n", "7.2"),
    (["CLIENT", "SETINFO", "lib-ver", "a b"],
     b"-ERR lib-ver cannot contain spaces, newlines or special characters."
     b"\r\n", "7.2"),
    (["CLIENT", "SETNAME", "n" * 129],
     b"-ERR Client names cannot be longer than 128 bytes\r\n",
     "memory is bounded"),
    ("CONFIG GET save appendonly", None, "Redis' order is that of a hash"),
    ("COMMAND GETKEYS PING", b"-ERR The command has no key arguments\r\n",
     "as since 7.2"),
    ("COMMAND GETKEYS NOPE", b"-ERR Invalid command specified\r\n", "7.2"),
    (["INFO", b"clients\x00x"], (b"$0\r\n\r\n", b"=4\r\ntxt:\r\n"),
     "a name ends where it says, not at a NUL"),
    ("GET x", b"-ERR unknown command 'GET', with args beginning with: 'x' ",
     "other commands"),
    ("LIKE", b"-ERR wrong number of arguments for 'like' command\r\n",
     "other commands"),
]


@pytest.mark.parametrize("where", ["unix", "tcp"])
@pytest.mark.parametrize("proto", [2, 3])
def test_one_by_one(pair, proto, where):
    with pair.wires(where) as wires:
        for wire in wires:
            wire.call("HELLO", proto, "SETNAME", "me")
        for line in SAME + ["RESET", "PING", "CLIENT GETNAME", "QUIT"]:
            redis, daemon = (wire.call(*request_of(line)) for wire in wires)
            assert masked(daemon) == masked(redis), line
        assert all([wire.closed() for wire in wires])


@pytest.mark.parametrize("proto", [2, 3])
def test_in_a_pipeline(pair, proto):
    """What comes after QUIT is not answered."""
    requests = [encode("HELLO", proto)] + [
        encode(*request_of(line)) for line in pair.pipeline(SAME)] + [
        encode("QUIT", "x", "y"), encode("PING")]
    with pair.wires() as wires:
        for wire in wires:
            wire.send(b"".join(requests))
        for request in requests[:-1]:
            redis, daemon = (wire.read() for wire in wires)
            assert masked(daemon) == masked(redis), request
        assert all([wire.closed() for wire in wires])


def test_inline(pair):
    """All lines that are words, in quotes or not; and empty ones."""
    lines = [line for line in SAME if isinstance(line, str)
             and line.isascii()]
    with pair.wires() as wires:
        for line in lines + ["RESET"]:
            quoted = " ".join(f'"{word}"' for word in line.split(" "))
            for text in (line + "\r\n", f"\r\n  {quoted} \n"):
                for wire in wires:
                    wire.send(text.encode())
                redis, daemon = (wire.read() for wire in wires)
                assert masked(daemon) == masked(redis), text


@pytest.mark.parametrize("proto", [2, 3])
def test_different_by_design(pair, proto):
    with pair.wires() as wires:
        for wire in wires:
            wire.call("HELLO", proto)
        for line, expected, why in DIFFERENT:
            got = wires[1].call(*request_of(line))
            if expected is None:  # the same in another order
                redis = wires[0].call(*request_of(line))
                assert sorted(got.split(b"$")) == sorted(redis.split(b"$"))
                continue
            if isinstance(expected, tuple):
                expected = expected[proto - 2]
            assert got.startswith(expected), (line, why)


@pytest.mark.parametrize("proto", [2, 3])
def test_hello(pair, proto):
    """Clients look at its fields. Back and forth in one connection."""
    other = 5 - proto
    with pair.wires() as wires:
        for arguments in ([], [proto], [], [proto, "SETNAME", "me"], [other],
                          [other], [proto, "AUTH", "default", "any"], [other],
                          [proto, "SETNAME", "a", "AUTH", "default", "x"]):
            redis, daemon = (wire.call("HELLO", *arguments) for wire in wires)
            assert daemon.count(b"\r\n") > 20
            assert masked(daemon) == masked(redis), arguments
            redis, daemon = (wire.call("CLIENT", "GETNAME") for wire in wires)
            assert daemon == redis, arguments


# ---- the protocol ----

PROTOCOL = [
    b"", encode("PING"), b"PING\r\n", b"PING\n", b"\r\nPING\r\n",
    b"\n\n\r\nPING\r\n", b"   \r\nPING\r\n", b"*0\r\nPING\r\n",
    b"*-1\r\nPING\r\n", b"*-5\r\nPING\r\n", b"PING 'a\r\n", b'PING "a\r\n',
    b'PING "a"b\r\n', b"PING 'a'b\r\n", b'PING "\\x41\\n"\r\n',
    b"PING 'a\\'b'\r\n", b"  PING   hi  \r\n", b'"PING"\r\n', b"PING ''\r\n",
    b'PI"NG"\r\n', b"*x\r\n", b"*\r\n", b"*1x\r\n", b"*01\r\n$4\r\nPING\r\n",
    b"*+1\r\n$4\r\nPING\r\n", b"*-0\r\n", b"* 1\r\n",
    b"*99999999999999999999\r\n", b"*2147483648\r\n", b"*1\r\n:1\r\n",
    b"*1\r\nxx\r\n", b"*1\r\n\r\nPING\r\n", b"*1\r\n\x01\r\n",
    b"*1\r\n\xff\r\n", b"*1\r\n$x\r\n", b"*1\r\n$\r\n", b"*1\r\n$-1\r\n",
    b"*1\r\n$-2\r\n", b"*1\r\n$04\r\nPING\r\n", b"*1\r\n$+4\r\nPING\r\n",
    b"*1\r\n$99999999999999999999\r\n", b"*1\n$4\r\nPING\r\n",
    b"*1\r\n$4\nPING\r\n", b"POST / HTTP/1.1\r\n", b"Host: x\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"post\r\n", b"host:\r\nPING\r\n",
    b"*1\r\n$0\r\n\r\n", b"$4\r\nPING\r\n", b"+PING\r\n", b"-ERR\r\n",
    b":1\r\n", b"%1\r\n", b"_\r\n", b"\x16\x03\x01\r\n",
    encode("PING") + b"*x\r\n" + encode("PING"),
    encode("PING") * 3 + b"*1\r\n:\r\n", encode("QUIT") + encode("PING"),
]
# More than a line may have, at its last byte.
LONG_LINES = [b"*" + 65536 * b"1", b"*1\r\n$" + 65536 * b"1", 65537 * b"A"]

# As above, for what is wrong in a request itself.
PROTOCOL_DIFFERENT = [
    (b"*2147483647\r\n", b"-ERR Protocol error: too many arguments "
     b"(server.max_args)\r\n", "a limit of ours"),
    (b"*1\r\n$536870913\r\n", b"-ERR Protocol error: too long an argument "
     b"(server.max_arg_bytes)\r\n", "a limit of ours"),
    (b"*1\r\n$4\r\nPINGxx", b"-ERR Protocol error: expected CRLF after "
     b"bulk\r\n", "Redis does not look, and takes the next request apart"),
    (b"PING " + 65600 * b"a" + b"\r\n", b"-ERR Protocol error: too big inline "
     b"request\r\n", "Redis forgoes its limit when the end is there, too"),
    (b"PING a\x00b\r\n", b"$3\r\na\x00b\r\n", "Redis waits for ever"),
    (encode("POST", "x"), b"-ERR unknown command 'POST', with args beginning "
     b"with: 'x' \r\n", "Redis closes; but no browser can send this"),
]
END = encode("PING", "the end")
END_REPLY = b"$7\r\nthe end\r\n"


def replies_to(address, data):
    """All replies up to that to END, or to where the other side closes."""
    replies = []
    with Wire(address) as wire:
        wire.send(data)
        while not replies or replies[-1] not in (b"", END_REPLY):
            replies.append(wire.read())
    return replies


@pytest.mark.parametrize("data", PROTOCOL, ids=repr)
def test_protocol(pair, data):
    assert replies_to(pair.daemon.socket, data + END) == \
        replies_to(pair.redis.socket, data + END)


@pytest.mark.parametrize("data", LONG_LINES, ids=lambda data: repr(data[:4]))
def test_lines_that_are_too_long(pair, data):
    expected = replies_to(pair.redis.socket, data)
    assert replies_to(pair.daemon.socket, data) == expected
    assert expected[0].startswith(b"-ERR Protocol error: too big ")
    assert replies_to(pair.daemon.socket, data[:-1] + b"\r\n")[-1] == b""


@pytest.mark.parametrize("data, expected, why", PROTOCOL_DIFFERENT,
                         ids=lambda part: repr(part[:20]))
def test_protocol_different_by_design(pair, data, expected, why):
    with Wire(pair.daemon.socket) as wire:
        wire.send(data)
        assert wire.read() == expected, why


# ---- before AUTH ----

BEFORE = [
    "PING", "PING a b", "NOPE", "NOPE a b", "ECHO a", "ECHO", "SELECT 0",
    "INFO", "COMMAND", "COMMAND NOPE", "CLIENT ID", "CLIENT SETNAME x",
    "CLIENT NOPE", "CLIENT", "CLIENT GETNAME x", "CONFIG GET save",
    "CONFIG NOPE", "READONLY", "READONLY x", "AUTH", "AUTH wrong",
    "AUTH default wrong", ["AUTH", "bob", PASSWORD], ["AUTH", ""],
    "AUTH a b c", "HELLO", "HELLO 2", "HELLO 3", "HELLO 4", "HELLO x",
    "HELLO 3 NOPE", "HELLO 3 AUTH default wrong",
    ["HELLO", "3", "AUTH", "bob", PASSWORD], "HELLO 3 SETNAME x",
    "HELLO 3 AUTH default wrong SETNAME x",
    "HELLO 3 SETNAME x AUTH default wrong", "HELLO 3 AUTH default",
    "HELLO 3 SETNAME \xe9 AUTH default wrong", "RESET", "RESET x", "PING",
    ["AUTH", PASSWORD[:-1]], ["AUTH", PASSWORD + "x"], ["AUTH", PASSWORD * 2],
]
# Each stands for itself; between them comes a RESET.
AFTER = [
    [["AUTH", PASSWORD], "PING", "CLIENT GETNAME"],
    [["AUTH", "default", PASSWORD], "PING", "AUTH wrong", "PING",
     "AUTH default wrong", "PING", "HELLO 3 AUTH default wrong", "PING"],
    [["HELLO", "2", "AUTH", "default", PASSWORD, "SETNAME", "me"],
     "CLIENT GETNAME", "RESET", "CLIENT GETNAME"],
    [["HELLO", "3", "SETNAME", "me", "AUTH", "default", PASSWORD],
     "CLIENT GETNAME", "HELLO 3 AUTH default wrong SETNAME you",
     "CLIENT GETNAME", "HELLO 2 AUTH default wrong", "CLIENT GETNAME"],
    [["HELLO", "2", "SETNAME", "\xe9", "AUTH", "default", PASSWORD], "PING"],
    ["HELLO 3", "PING", ["AUTH", PASSWORD], "HELLO 3", "CLIENT GETNAME"],
    [["HELLO", "3", "AUTH", "default", PASSWORD], "HELLO 2", "HELLO",
     "HELLO 3 SETNAME you", "CLIENT GETNAME"],
    [["AUTH", PASSWORD], "RESET", "PING", "HELLO", ["AUTH", PASSWORD],
     "HELLO"],
]
AFTER_DIFFERENT = [
    (["HELLO", "3", "AUTH", "default", PASSWORD, "NOPE"],
     b"-ERR Syntax error in HELLO option 'NOPE'\r\n",
     "as since 7.2: all options are read before any takes effect"),
    (["PING"], b"-NOAUTH Authentication required.\r\n", "so nobody got in"),
    (["HELLO", "2", "AUTH", "default", PASSWORD, "SETNAME", "\xe9"],
     b"-ERR Client names cannot contain spaces", "the same"),
    (["PING"], b"-NOAUTH Authentication required.\r\n", "so nobody got in"),
]


@pytest.mark.parametrize("where", ["unix", "tcp"])
def test_before_and_after_auth(locked, where):
    with locked.wires(where) as wires:
        for lines in [BEFORE] + AFTER:
            for line in ["RESET", "PING"] + lines:
                redis, daemon = (wire.call(*request_of(line))
                                 for wire in wires)
                assert masked(daemon) == masked(redis), (lines, line)


def test_auth_in_a_pipeline(locked):
    lines = locked.pipeline(
        line for part in AFTER for line in ["RESET", *part])
    with locked.wires() as wires:
        for wire in wires:
            wire.send(b"".join(encode(*request_of(line)) for line in lines))
        for line in lines:
            redis, daemon = (wire.read() for wire in wires)
            assert masked(daemon) == masked(redis), line


def test_auth_different_by_design(locked):
    with Wire(locked.daemon.socket) as wire:
        for line, expected, why in AFTER_DIFFERENT:
            assert wire.call(*line).startswith(expected), why


@pytest.mark.parametrize("data", [
    b"*11\r\n", b"*1\r\n$16385\r\n", b"*1\r\n$-1\r\n", b"*x\r\n",
    b"*10\r\n" + b"$1\r\na\r\n" * 10, b"*1\r\n$16384\r\n" + b"a" * 16384
    + b"\r\n", b"NOPE " + b"a " * 9 + b"\r\n", b"PING 'a\r\n",
    b"POST / HTTP/1.1\r\n", encode("QUIT"),
    encode("AUTH", PASSWORD) + encode(*"PING a b c d e f g h i j k".split())],
    ids=lambda data: repr(data[:12]))
def test_protocol_before_auth(locked, data):
    with locked.wires() as wires:
        found = []
        for wire in wires:
            wire.send(data + encode("RESET"))
            found.append([])
            while not found[-1] or found[-1][-1] not in (b"", b"+RESET\r\n"):
                found[-1].append(wire.read())
        assert found[0] == found[1]


# ---- NOPERM ----

def test_commands_for_the_admin_only(pair):
    """In the words of Redis 7.0, which may go on: later ones name the user,
    which nobody has here."""
    words = b"-NOPERM this user has no permissions to run the 'get' command"
    redis = pair.redis.client()
    redis.execute_command("ACL", "SETUSER", "bob", "on", "nopass", "+@all",
                          "-get")
    with Wire(pair.redis.socket) as wire:
        wire.call("AUTH", "bob", "any")
        denied = wire.call("GET", "x")
    if pair.version.startswith("7.0."):
        assert denied == words + b"\r\n"
    assert denied.startswith(b"-NOPERM ")
    with Wire(pair.daemon.socket) as wire, \
            Wire(pair.daemon.admin_socket) as admin:
        for name in (b"flusher", b"adopt", b"verify"):
            expected = words.replace(b"get", name)
            for rest in (["STATUS"], ["NOPE"], ["HELP"]):
                reply = wire.call(name.decode(), *rest)
                assert reply.startswith(expected), reply
            assert admin.call(name.decode(), "HELP")[:1] == b"*"
            assert admin.call(name.decode(), "NOPE") == \
                b"-ERR unknown subcommand 'NOPE'. Try %s HELP.\r\n" \
                % name.upper()


# ---- INFO ----

def sections(text):
    """{section: {field: value}}; the text must be made as Redis makes it."""
    found = {}
    for part in text.split("\r\n\r\n") if text else []:
        title, *lines = part.rstrip("\r\n").split("\r\n")
        assert title.startswith("# "), part
        found[title[2:]] = dict(line.split(":", 1) for line in lines)
    return found


def info(wire, *arguments):
    reply = wire.call("INFO", *arguments).decode()
    assert reply[:1] in "$="
    text = reply.split("\r\n", 1)[1]
    assert text.endswith("\r\n")
    return text[4 if reply[0] == "=" else 0:-2]


@pytest.mark.parametrize("proto", [2, 3])
def test_info(pair, proto):
    with pair.wires() as (redis, daemon):
        for wire in (redis, daemon):
            wire.call("HELLO", proto)
        ours, theirs = sections(info(daemon)), sections(info(redis))
        own = {"Likesync": set(ours["Likesync"]),
               "Server": {"likesyncd_version"}}
        for section, fields in ours.items():
            fields = set(fields) - own.get(section, set())
            assert fields <= set(theirs.get(section, {})), section
        assert ours["Persistence"]["loading"] == "0"
        assert ours["Replication"]["role"] == "master"
        assert ours["Server"]["redis_mode"] == "standalone"
        assert re.fullmatch(r"[0-9a-f]{32,40}", ours["Server"]["run_id"])
        assert int(ours["Clients"]["connected_clients"]) == 1
        assert int(ours["Clients"]["maxclients"]) > 0
        names = list(ours)
        for arguments, expected in (
                (["server"], ["Server"]), (["SERVER"], ["Server"]),
                (["stats", "server", "nonsense"], ["Server", "Stats"]),
                (["server", "server"], ["Server"]), (["nonsense"], []),
                (["everything"], names), (["ALL"], names),
                (["default", "nonsense"], names)):
            assert list(sections(info(daemon, *arguments))) == expected
            both = sections(info(redis, *arguments))
            assert [name for name in expected if name in both] == \
                [name for name in expected if name != "Likesync"], arguments


# ---- CLIENT INFO and LIST ----

def lines_of(reply):
    """The lines of CLIENT INFO or LIST as lists of (field, value)."""
    text = reply.decode().split("\r\n", 1)[1][:-2].removeprefix("txt:")
    assert not text or text.endswith("\n")
    return [[tuple(part.split("=", 1)) for part in line.split(" ")]
            for line in text.splitlines()]


@pytest.mark.parametrize("where", ["unix", "tcp"])
@pytest.mark.parametrize("proto", [2, 3])
def test_client_info(pair, proto, where):
    """Redis' fields in Redis' order, as far as we have the thing."""
    with pair.wires(where) as (redis, daemon):
        for wire in (redis, daemon):
            wire.call("HELLO", proto, "SETNAME", "me")
        names = [name for name, _ in
                 lines_of(redis.call("CLIENT", "INFO"))[0]]
        daemon.call("CLIENT", "SETINFO", "LIB-NAME", "lib")
        daemon.call("CLIENT", "SETINFO", "LIB-VER", "1.2")
        [ours] = lines_of(daemon.call("CLIENT", "INFO"))
        shared = [name for name, _ in ours if name in names]
        assert shared == [name for name in names if name in shared]
        assert {name for name, _ in ours} - set(names) <= \
            {"lib-name", "lib-ver", "admin"}
        ours = dict(ours)
        local = daemon.socket.getsockname()
        assert ours.items() >= {
            "id": str(int(daemon.call("CLIENT", "ID")[1:])), "name": "me",
            "db": "0", "multi": "-1", "resp": str(proto), "user": "default",
            "cmd": "client|info", "lib-name": "lib", "lib-ver": "1.2",
            "events": "r", "admin": "0", "qbuf": "0", "obl": "0",
            "flags": "U" if where == "unix" else "N",
            "laddr": f"{pair.daemon.socket}:0" if where == "unix" else
            f"127.0.0.1:{pair.daemon.port}",
            "addr": f"{pair.daemon.socket}:0" if where == "unix" else
            f"{local[0]}:{local[1]}"}.items()
        assert int(ours["fd"]) > 2 and int(ours["tot-mem"]) > 0
        assert 0 <= int(ours["idle"]) <= int(ours["age"]) + 1


def ids_of(reply):
    return [int(dict(line)["id"]) for line in lines_of(reply)]


def test_client_list(pair):
    with contextlib.ExitStack() as opened:
        wires = [opened.enter_context(Wire(pair.daemon.socket))
                 for _ in range(3)]
        ids = [int(wire.call("CLIENT", "ID")[1:]) for wire in wires]
        assert ids_of(wires[0].call("CLIENT", "LIST")) == ids
        assert ids_of(wires[0].call("CLIENT", "LIST", "TYPE", "Normal")) == ids
        # As asked for: in this order, and twice.
        asked = [ids[2], ids[0], 10 ** 9, ids[2]]
        assert ids_of(wires[0].call("CLIENT", "LIST", "ID", *asked)) == \
            [ids[2], ids[0], ids[2]]
        wires[0].call("HELLO", 3)
        assert wires[0].call("CLIENT", "LIST").startswith(b"=")


def test_client_list_of_many(pair):
    """In pieces: the list is whole, others are answered, requests of the same
    client come before and after it, and one that goes away takes nothing with
    it."""
    with contextlib.ExitStack() as opened:
        wires = [opened.enter_context(Wire(pair.daemon.socket))
                 for _ in range(700)]
        ids = [int(wire.call("CLIENT", "ID")[1:]) for wire in wires]
        for wire in wires[:20]:
            wire.send(encode("LIKE", 7, 42) + encode("CLIENT", "LIST") * 2
                      + encode("CLIENT", "SETNAME", "done")
                      + encode("CLIENT", "LIST", "ID", *ids[:600])
                      + encode("PING"))
        for wire in wires[680:]:
            wire.send(encode("CLIENT", "LIST") + encode("PING"))
            wire.close()
        assert wires[300].call("PING") == b"+PONG\r\n"
        for wire in wires[:20]:
            assert wire.read()[:1] == b":"
            for _ in range(2):
                listed = ids_of(wire.read())
                assert listed == sorted(listed)
                assert listed[:680] == ids[:680]
            assert wire.read() == b"+OK\r\n"
            assert ids_of(wire.read()) == ids[:600]
            assert wire.read() == b"+PONG\r\n"


# ---- COMMAND ----

NAMES = """like unlike liked likecount likers likedposts follow unfollow
following followers fans relation mutuals common followcount flusher adopt
verify deadletter settings ping echo hello auth select client command config
info readonly reset quit""".split()


def tree(wire, *arguments):
    """A reply as Python values; maps as dicts."""
    def read():
        line = wire.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            if rest == b"-1":
                return None
            return wire.file.read(int(rest) + 2)[:-2].decode()
        if kind == b"_":
            return None
        if kind in b"*~":
            return [read() for _ in range(int(rest))]
        if kind == b"%":
            return {read(): read() for _ in range(int(rest))}
        assert kind in b"+:", line
        return rest.decode() if kind == b"+" else int(rest)
    wire.send(encode(*arguments))
    return read()


@pytest.mark.parametrize("proto", [2, 3])
def test_command_tells_of_all_commands(pair, proto):
    with pair.wires() as (redis, daemon):
        for wire in (redis, daemon):
            wire.call("HELLO", proto)
        listed = tree(daemon, "COMMAND")
        assert sorted(row[0] for row in listed) == sorted(NAMES)
        assert tree(daemon, "COMMAND", "COUNT") == len(NAMES)
        assert tree(daemon, "COMMAND", "LIST") == [row[0] for row in listed]
        assert tree(daemon, "COMMAND", "INFO") == listed
        for row in listed:
            assert tree(daemon, "COMMAND", "INFO", row[0].upper()) == [row]
            for sub in row[9]:
                assert tree(daemon, "COMMAND", "INFO", sub[0]) == [sub]
                assert daemon.call(*sub[0].split("|"), *"abcdefgh")[:5] in (
                    b"-ERR ", b"-NOPE", b"*8\r\n_", b"*8\r\n$", b"%0\r\n",
                    b"*0\r\n"), sub
        subs = [sub[0] for row in listed for sub in row[9]]
        assert {"flusher|drain", "adopt|start", "client|list", "config|get",
                "command|docs", "verify|stop"} <= set(subs)
        assert tree(daemon, "COMMAND", "LIST", "FILTERBY", "ACLCAT",
                    "WRITE") == ["like", "unlike", "follow", "unfollow"]
        assert tree(daemon, "COMMAND", "LIST", "FILTERBY", "PATTERN",
                    "FLUSHER*") == ["flusher", *(
                        sub for sub in subs if sub.startswith("flusher|"))]


def test_the_shared_commands_are_described_as_in_redis(pair):
    """Arity, keys and, of those for connections, categories."""
    with pair.wires() as (redis, daemon):
        for name in """ping echo hello auth select client command config info
                       readonly reset quit client|getname client|help
                       client|id client|info client|list client|setname
                       config|get config|help command|count command|docs
                       command|info command|list command|help""".split():
            [ours] = tree(daemon, "COMMAND", "INFO", name)
            [theirs] = tree(redis, "COMMAND", "INFO", name)
            assert len(ours) == len(theirs)
            assert ours[:2] == theirs[:2] and ours[3:6] == theirs[3:6], name
            assert set(ours[2]) <= set(theirs[2]), name
            if "@connection" in theirs[6]:
                assert set(ours[6]) <= set(theirs[6]), name
            shared = {sub[0] for sub in theirs[9]}
            assert {sub[0] for sub in ours[9]} - shared <= {"client|setinfo"}


@pytest.mark.parametrize("proto", [2, 3])
def test_command_docs(pair, proto):
    with Wire(pair.daemon.socket) as wire:
        wire.call("HELLO", proto)
        docs = tree(wire, "COMMAND", "DOCS")
        one = tree(wire, "COMMAND", "DOCS", "like", "nonsense", "flusher|drain")
        if proto == 2:
            docs = dict(zip(docs[::2], docs[1::2]))
            one = dict(zip(one[::2], one[1::2]))
            docs, one = ({name: dict(zip(row[::2], row[1::2]))
                          for name, row in each.items()}
                         for each in (docs, one))
        assert sorted(docs) == sorted(NAMES)
        assert list(one) == ["like", "flusher|drain"]
        assert one["like"] == docs["like"]
        assert all(row["summary"] and row["since"] and row["group"]
                   for row in docs.values())
        subs = docs["flusher"]["subcommands"]
        assert "flusher|drain" in subs and "flusher|status" in subs


@pytest.mark.parametrize("command", ["CLIENT", "CONFIG", "COMMAND", "FLUSHER",
                                     "ADOPT", "VERIFY"])
def test_help(pair, command):
    """Where errors point to; made as Redis makes it, of what there is here."""
    with Wire(pair.redis.socket) as redis, \
            Wire(pair.daemon.admin_socket) as wire:
        title, *lines = tree(wire, command, "HELP")
        assert title == tree(redis, "CLIENT", "HELP")[0].replace(
            "CLIENT", command)
        assert lines[-2:] == ["HELP", "    Prints this help."]
        assert all(line.startswith("    ") for line in lines[1::2])
        names = [line.split(" ")[0].lower() for line in lines[::2]]
        [row] = tree(wire, "COMMAND", "INFO", command)
        assert [sub[0] for sub in row[9]] == [f"{command.lower()}|{name}"
                                              for name in names]
