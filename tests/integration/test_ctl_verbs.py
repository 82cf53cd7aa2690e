# SPDX-License-Identifier: MIT
"""likesyncctl for whoever looks into things: top, deadletter, config, --json, the
help of each verb, and completion in bash."""
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading

import pytest

import harness
from servers import ROOT, run, wait_for

CTL = harness.BUILD / "likesyncctl"
COMPLETION = ROOT / "etc" / "bash-completion" / "likesyncctl"
VIEWS = ROOT / "sql" / "views.sql"


def ctl(daemon, *arguments):
    """(exit status, stdout, stderr)"""
    done = subprocess.run(
        [str(a) for a in (CTL, "-s", daemon.admin_socket, *arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def ctl_json(daemon, *arguments):
    code, out, err = ctl(daemon, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


class Terminal:
    """A likesyncctl that has a terminal of its own."""

    def __init__(self, daemon, *arguments, size=(24, 80)):
        self.fd, slave = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(slave)
        self.slave = slave

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = subprocess.Popen(
            [str(a) for a in (CTL, "-s", daemon.admin_socket, *arguments)],
            stdin=slave, stdout=slave, stderr=slave,
            env={**os.environ, "TERM": "xterm"}, preexec_fn=own_terminal)
        self.text = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ,
                    struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        """What it has shown so far."""
        while select.select([self.fd], [], [], 0)[0]:
            self.text += os.read(self.fd, 65536).decode()
        return self.text

    def screens(self):
        """The lines of each whole screen so far."""
        return [re.sub(r"\x1b\[K", "", screen.split("\x1b[J")[0]).split("\r\n")
                for screen in self.read().split("\x1b[H")[1:]
                if "\x1b[J" in screen]

    def see(self, pattern, what=None):
        """The match in the newest screen, once there is one."""
        return wait_for(
            lambda: self.screens() and re.search(
                pattern, "\n".join(self.screens()[-1]), re.M),
            what=what or pattern)

    def type(self, keys):
        os.write(self.fd, keys)

    def end(self):
        """The exit status; the terminal is as it was."""
        status = self.process.wait(60)
        self.read()
        assert termios.tcgetattr(self.slave) == self.before
        os.close(self.slave)
        os.close(self.fd)
        return status


@contextlib.contextmanager
def terminal(*arguments, **size):
    t = Terminal(*arguments, **size)
    try:
        yield t
    finally:
        if t.process.poll() is None:
            t.process.kill()
            t.process.wait()


@pytest.fixture
def slow(bed, redis, pg):
    """Its flusher does nothing in a test unless it is asked to."""
    return bed.daemon(redis, pg, flush_interval_ms=3600000)


# ---- top ----

LEAVES = "\x1b[?25h\x1b[?1049l"


def test_top_is_live_on_a_terminal(slow):
    with terminal(slow, "top", "-i", "100") as top:
        top.see(r"^redis +connected$")
        assert top.text.startswith("\x1b[?1049h\x1b[?25l")
        top.see(r"^flusher +running$")
        top.see(r"^postgres +connected \(2 of 2\)$")
        top.see(r"^posts and users that wait +0 +0 +0$")
        with slow.client() as client:
            for post in range(1234):
                client.execute_command("LIKE", 7, post)
            client.execute_command("FOLLOW", 7, 8)
        top.see(r"^posts and users that wait +1,235 +1,234 +1$")
        # A rate was seen while they came, and none is now.
        top.see(r"^events per second +0 +0 +0$")
        assert any(re.search(r"^events per second +[1-9]", line)
                   for screen in top.screens() for line in screen)
        slow.drain()
        top.see(r"^posts and users that wait +0 +0 +0$")
        top.see(r"^synced through +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$")
        top.type(b"q")
        assert top.end() == 0
        assert top.text.endswith(LEAVES)


@pytest.mark.parametrize("how", ["Q", "Ctrl-C", "SIGTERM", "SIGHUP"])
def test_top_leaves_the_terminal_as_it_was(slow, how):
    with terminal(slow, "top") as top:
        top.see("^redis +connected")
        top.type(b"x")          # any other key: nothing
        if how.startswith("SIG"):
            top.process.send_signal(getattr(signal, how))
        else:
            top.type({"Q": b"Q", "Ctrl-C": b"\x03"}[how])
        assert top.end() == 0
        assert top.text.endswith(LEAVES)


def test_top_fits_into_the_terminal(slow):
    with terminal(slow, "top", "-i", "3600000", size=(40, 100)) as top:
        top.see("q or Ctrl-C ends$")
        top.resize(5, 20)       # drawn again at once, long before the interval
        wait_for(lambda: len(top.screens()) > 1, what="another screen")
        small = top.screens()[-1]
        assert len(small) == 5 and max(map(len, small)) == 20
        assert small[0] == top.screens()[0][0][:20]
        top.resize(40, 100)
        top.see("q or Ctrl-C ends$")
        top.type(b"q")
        assert top.end() == 0


def test_top_waits_for_a_daemon_that_is_away(slow):
    with terminal(slow, "top", "-i", "100", size=(40, 200)) as top:
        top.see("^redis +connected")
        slow.kill9()
        top.see(r"^NO ANSWER: .*(closed the connection|Connection refused)")
        top.see(r"^redis +connected")        # of before
        slow.start()
        top.see(r"\Alikesyncd ")
        top.type(b"q")
        assert top.end() == 0


def test_top_does_not_wait_for_what_never_answers(slow):
    with terminal(slow, "-s", slow.socket, "top") as top:
        assert top.end() == 1
        assert re.search(re.escape(LEAVES) + "likesyncctl: NOPERM .*admin listener",
                         top.text)


def test_top_can_be_left_while_the_daemon_hangs(slow):
    with terminal(slow, "top", "-i", "100") as top:
        top.see("^redis +connected")
        slow.pause()
        top.type(b"q")
        assert top.end() == 0
        slow.resume()


COLUMNS = ["time", "events/s", "rows/s", "waiting", "on", "record", "lag", "s",
           "state"]


def test_top_prints_lines(slow):
    with slow.client() as client:
        for post in range(5):
            client.execute_command("LIKE", 7, post)
    wait_for(lambda: ctl_json(slow, "status")["rows_dirty"] == 5,
             what="the backlog")
    code, out, err = ctl(slow, "top", "-n", "3", "-i", "100")
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == COLUMNS and len(lines) == 3
    for line in lines:
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC +0 +0 +5 +0 +[\d.-]+  running",
            line)


def test_top_prints_lines_until_nobody_reads_them(slow):
    with subprocess.Popen(
            [CTL, "-s", slow.admin_socket, "top", "-i", "100"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as top:
        assert top.stdout.readline().split() == [
            word.encode() for word in COLUMNS]
        for _ in range(3):
            assert top.stdout.readline().endswith(b"  running\n")
        top.stdout.close()
        assert top.wait(60) == -signal.SIGPIPE


def test_top_names_what_is_away(bed, redis, pg):
    daemon = bed.daemon(redis, pg)
    redis.stop()
    wait_for(lambda: ctl_json(daemon, "status")["redis"] != "connected",
             what="Redis to be missed")
    code, out, _ = ctl(daemon, "top", "-n", "1", "-i", "100")
    assert code == 0
    assert re.search("  running; redis: (?!connected).+$",
                     out.splitlines()[1])


class Crafted(threading.Thread):
    """In place of a daemon: answers each request with the same, in which a backend
    speaks to the terminal."""
    EVIL = "connected \x1b]0;gone\x07\x9b2J\x7f\nöl \udcff"
    PLAIN = "connected ?]0;gone??2J? öl ?"

    def __init__(self, path, reply):
        super().__init__(daemon=True)
        self.admin_socket = path
        self.reply = reply.encode(errors="surrogateescape")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.start()

    def run(self):
        while True:
            connection = self.listener.accept()[0]
            while connection.recv(65536):
                connection.sendall(self.reply)


def crafted_map(**fields):
    texts = [text for pair in fields.items() for text in pair]
    return f"*{len(texts)}\r\n" + "".join(
        f"${len(t.encode(errors='surrogateescape'))}\r\n{t}\r\n"
        for t in texts)


@pytest.fixture
def crafted(tmp_path):
    evil = Crafted.EVIL
    return Crafted(tmp_path / "s", crafted_map(
        redis=evil, postgres=evil.replace("connected", "refused"),
        flusher="running", dropped=evil))


def test_nothing_of_a_backend_steers_the_terminal(crafted):
    plain = Crafted.PLAIN
    for verb in ("status",), ("top", "-n", "1", "-i", "100"):
        code, out, err = ctl(crafted, *verb)
        assert (code, err) == (0, "")
        assert plain.replace("connected", "refused") in out
        assert not re.search(r"[^\n -~ö]", out), repr(out)
    with terminal(crafted, "top") as top:
        top.see(re.escape(plain))
        shown = top.screens()[-1]
        assert not re.search(r"[^ -~ö]", "".join(shown)), shown


def test_nothing_of_an_error_steers_the_terminal(tmp_path):
    evil = Crafted.EVIL.replace("\n", " ")
    crafted = Crafted(tmp_path / "s", f"-ERR {evil}\r\n")
    for verb in ("status", "top", "ping", "drain", "verify", "config"):
        code, out, err = ctl(crafted, verb)
        assert (code != 0, out, err) == \
            (True, "", f"likesyncctl: ERR {Crafted.PLAIN}\n")


@pytest.mark.parametrize("verb", [("ping",), ("deadletter", "retry", "1"),
                                  ("deadletter", "drop", "1", "--yes")])
def test_nothing_of_a_reply_steers_the_terminal(tmp_path, verb):
    evil = Crafted.EVIL.replace("\n", " ")
    crafted = Crafted(tmp_path / "s", f"+{evil}\r\n")
    code, out, err = ctl(crafted, *verb)
    assert (code, err) == (0, "")
    assert out.removeprefix("dropped: ") == f"{Crafted.PLAIN}\n"


def test_top_without_a_daemon_fails(slow):
    slow.kill9()
    code, out, err = ctl(slow, "top", "-n", "1")
    assert (code, out) == (1, "") and "is likesyncd running?" in err


# ---- deadletter ----

@pytest.fixture
def letters(daemon, pg):
    """A daemon, and the ids of two letters: a like and a follow."""
    pg.psql("-f", VIEWS)
    pg.query("ALTER TABLE user_like_post ADD CONSTRAINT no CHECK (false)")
    pg.query("ALTER TABLE user_follow ADD CONSTRAINT no CHECK (false)")
    with daemon.client() as client:
        client.execute_command("LIKE", 7, 42)
        daemon.drain()
        client.execute_command("FOLLOW", 7, 8)
        daemon.drain()
    return daemon, *[str(number) for number, in pg.query(
        "SELECT id FROM sync_dead_letter ORDER BY kind DESC")]


def test_letters_are_listed(letters):
    daemon, like, follow = letters
    code, out, err = ctl(daemon, "deadletter", "list")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == 2 + 2 * 2
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert re.fullmatch(rf"{follow} +{when}  23514  FOLLOW 7 8", lines[2])
    assert re.fullmatch(rf" +.*\"no\".*", lines[3])
    assert re.fullmatch(rf"{like} +{when}  23514  LIKE 7 42", lines[4])
    code, out, _ = ctl(daemon, "deadletter", "list", "-n", "1")
    assert code == 0 and "LIKE 7 42" not in out
    assert out.endswith("\n2 in all\n")
    code, out, _ = ctl(daemon, "deadletter", "list", like)
    assert "FOLLOW" not in out and "LIKE 7 42" in out
    code, out, err = ctl(daemon, "deadletter", "list", "x")
    assert (code, out) == (1, "") and "invalid id 'x'" in err


def test_letters_as_json(letters):
    daemon, like, follow = letters
    reply = ctl_json(daemon, "deadletter", "list")
    assert reply["total"] == 2
    assert [(letter["id"], letter["what"], letter["user"], letter["sqlstate"])
            for letter in reply["letters"]] == [
        (int(follow), "FOLLOW 7 8", "7", "23514"),
        (int(like), "LIKE 7 42", "7", "23514")]
    assert reply["letters"][0]["followee"] == "8"
    assert reply["letters"][1]["post"] == "42"


def test_no_letters(daemon):
    assert ctl(daemon, "deadletter", "list") == (0, "no dead letters\n", "")
    assert ctl_json(daemon, "deadletter", "list") == {"total": 0,
                                                      "letters": []}


def test_letters_hold_any_text(daemon, pg):
    reason = 'a "b" \\ <c> é \x1b[31m\n\t'
    pg.query("INSERT INTO sync_dead_letter (kind, batch_id, owner_id, reason)"
             " VALUES ('like', 'b', '4 2', %s)", reason)
    [letter] = ctl_json(daemon, "deadletter", "list")["letters"]
    assert letter["reason"] == reason and letter["post"] == "4 2"
    # Nothing of it reaches a terminal as control characters.
    out = ctl(daemon, "deadletter", "list")[1]
    assert 'a "b" \\ <c> é ?[31m  \n' in out and "\x1b" not in out


def test_a_letter_is_tried_again(letters, pg):
    daemon, like, _ = letters
    code, out, err = ctl(daemon, "deadletter", "retry", like)
    assert (code, out) == (1, "") and "still refused" in err
    pg.query("ALTER TABLE user_like_post DROP CONSTRAINT no")
    assert ctl(daemon, "deadletter", "retry", like) == \
        (0, "applied: like 42 7\n", "")
    assert pg.query("SELECT user_id FROM user_like_post") == [(7,)]
    harness.check_exact(pg)
    code, _, err = ctl(daemon, "deadletter", "retry", like)
    assert code == 1 and f"there is no dead letter {like}" in err


@pytest.mark.parametrize("answer, dropped", [
    (b"y\n", True), (b"Yes\n", True), (b"n\n", False), (b"\n", False),
    (b"\x04", False)])
def test_a_terminal_is_asked_before_a_drop(letters, pg, answer, dropped):
    daemon, like, follow = letters
    with terminal(daemon, "deadletter", "drop", like) as drop:
        wait_for(lambda: drop.read().endswith("[y/N] "), what="the question")
        assert "LIKE 7 42" in drop.text and "FOLLOW" not in drop.text
        drop.type(answer)
        assert drop.end() == (0 if dropped else 1)
    assert (f"dropped: {like}" in drop.text) == dropped
    assert ("nothing was dropped" in drop.text) != dropped
    left = {str(number) for number, in pg.query("SELECT id FROM sync_dead_letter")}
    assert left == {follow} if dropped else left == {like, follow}


def test_a_drop_without_a_terminal(letters, pg):
    daemon, like, follow = letters
    code, out, err = ctl(daemon, "deadletter", "drop", like)
    assert (code, out) == (2, "") and "--yes" in err
    assert pg.value("SELECT count(*) FROM sync_dead_letter") == 2
    assert ctl(daemon, "deadletter", "drop", like, "--yes") == \
        (0, f"dropped: {like}\n", "")
    assert pg.query("SELECT id::text FROM sync_dead_letter") == [(follow,)]
    code, _, err = ctl(daemon, "deadletter", "drop", "--yes", like)
    assert code == 1 and f"there is no dead letter {like}" in err
    # On a terminal that is known before the question.
    with terminal(daemon, "deadletter", "drop", like) as drop:
        assert drop.end() == 1
        assert "[y/N]" not in drop.text and "there is no dead" in drop.text


# ---- config ----

def test_config_is_that_of_the_file(bed, redis, pg):
    daemon = bed.daemon(redis, pg, keys_follow='"f; {user} # x"')
    code, out, err = ctl(daemon, "config")
    assert (code, err) == (0, "")
    assert f"Its file: {daemon.config}\n" in out
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    printed = [line for line in run(
        [harness.BUILD / "likesyncd", "--print-config", "-c",
         daemon.config]).splitlines() if not line.startswith("#")]
    marked = {line.split(" =")[0] for line in lines
              if line.endswith(" ; restart")}
    assert {"listen", "conninfo", "connections"} <= marked
    assert not {"ttl", "batch_rows", "level"} & marked
    hidden = [line for line in lines if line.startswith("conninfo")]
    assert hidden == ["conninfo = (hidden) ; restart"]
    assert pg.conninfo() not in out

    def values(text):
        return [re.sub(" ; restart$", "", line) for line in text
                if line and not line.startswith("conninfo")]
    assert values(lines) == values(printed)


def test_config_marks_what_the_file_changes(bed, redis, pg):
    daemon = bed.daemon(redis, pg, cache_ttl=600)
    daemon.write_config(cache_ttl=700, postgres_connections=3)
    out = ctl(daemon, "config")[1]
    assert "\nttl = 600 ; the file has another value: reload\n" in out
    assert "\nconnections = 2 ; the file has another value: restart\n" in out
    assert out.count("another value") == 2
    reply = ctl_json(daemon, "config")
    assert reply["file"] == str(daemon.config) and reply["fault"] == ""
    assert {option["name"]: option["value"] for option in reply["options"]
            if option["differs"]} == {"cache.ttl": "600",
                                      "postgres.connections": "2"}
    daemon.write_config(cache_ttl="x")
    code, out, _ = ctl(daemon, "config")
    assert code == 0 and "The file cannot be used as it is now" in out
    assert f'{daemon.config}:' in out and 'cache.ttl = "x": expected' in out


# ---- --json ----

def test_status_as_json(slow):
    with slow.client() as client:
        client.execute_command("LIKE", 7, 42)
        client.execute_command("FOLLOW", 7, 8)
        client.execute_command("LIKE", 7, 42)
        status = wait_for(
            lambda: (s := ctl_json(slow, "status"))["rows_dirty"] == 2 and s,
            what="the backlog")
        # The client, and likesyncctl.
        assert status["clients"] == 2
    assert (status["events"], status["like_events"], status["follow_events"]) \
        == (3, 2, 1)
    assert status["redis"] == "connected" and status["dead_letters"] == 0
    text = dict(line.split(None, 1)
                for line in ctl(slow, "status")[1].splitlines())
    assert {name.removesuffix("_us") if "synced_through" in name else name
            for name in status} == set(text)
    slow.drain()
    assert ctl_json(slow, "status")["rows_written"] == 2


def test_verify_as_json(slow, redis, pg):
    with slow.client() as client:
        client.execute_command("LIKE", 7, 42)
    slow.drain()
    found = ctl_json(slow, "verify")
    assert (found["state"], found["hashes_different"], found["examples"]) == \
        ("done", 0, [])
    redis.client().hset("post_user_like_42_7", "status", 0)
    code, out, _ = ctl(slow, "verify", "--json", "--repair")
    found = json.loads(out)
    assert code == 1 and found["repair"] == 1
    assert found["hashes_different"] == found["hashes_mended"] == 1
    assert len(found["examples"]) == 1
    assert "example" not in found


# ---- help ----

def help_of(*words):
    return run([CTL, *words, "--help"])


def verbs():
    """{verb: its arguments, as --help has them}"""
    return {name: arg for name, arg in re.findall(
        r"^  ([a-z]+(?: [a-z]+)?)(?: (\[?[A-Z]+\]?|[a-z]+\|\S+))?  +[A-Z]",
        help_of(), re.M)}


def options(text):
    """The options that a help names."""
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*(?=[ ,])",
                          "\n".join(re.findall(r"^  +-.*$", text, re.M))))


def test_verbs_are_found():
    assert set(verbs()) == {
        "status", "top", "drain", "pause", "resume", "verify", "adopt",
        "deadletter list", "deadletter retry", "deadletter drop", "config",
        "ping"}
    assert verbs()["deadletter list"] == "[ID]"


def test_each_verb_has_its_help():
    used = set()
    for verb, arg in verbs().items():
        text = help_of(*verb.split())
        assert text.startswith(
            f"usage: likesyncctl [OPTION]... {' '.join([verb, arg]).strip()}\n")
        assert "Exit status:" in text
        assert max(map(len, text.splitlines())) < 80
        used |= options(text)
        assert {"--socket", "--help"} <= options(text)
    assert used == options(help_of())
    assert max(map(len, help_of().splitlines())) < 80
    both = help_of("deadletter")
    for verb in ("list", "retry", "drop"):
        assert f"usage: likesyncctl [OPTION]... deadletter {verb} " in both


def test_options_of_other_verbs_are_refused():
    """Each verb takes those that its help names, and no other."""
    values = {"--count": "1", "--interval": "100", "--timeout": "1"}
    every = {o for o in options(help_of()) if o.startswith("--")}
    for verb, arg in verbs().items():
        arguments = {"": [], "[ID]": [], "ID": ["1"]}.get(arg, ["likes"])
        for option in every - {"--socket", "--password-file", "--version",
                               "--help"}:
            done = subprocess.run(
                [CTL, "-s", "/nowhere", *verb.split(), *arguments, option,
                 *filter(None, [values.get(option)])], capture_output=True)
            taken = option in options(help_of(*verb.split()))
            refusal = f"{option} is not for {verb}\n".encode()
            assert (refusal not in done.stderr) == taken, (verb, option)
            assert (done.returncode == 2) != taken or verb == "verify"


@pytest.mark.parametrize("words, why", [
    (("deadletter",), "deadletter: expected list or retry or drop"),
    (("deadletter", "nope"), "deadletter: expected list or retry or drop"),
    (("deadletter", "retry"), "deadletter retry: expected ID"),
    (("deadletter", "drop", "1", "2"), "deadletter drop: expected ID"),
    (("adopt",), "adopt: expected follows|likes"),
    (("stat",), "unknown verb 'stat'"),
    (("deadletterlist",), "unknown verb"),
    (("nope", "--help"), "unknown verb 'nope'"),
    (("-n", "0", "top"), "--count 0: expected a number from 1 to 1000000"),
    (("-i", "99", "top"), "--interval 99: expected milliseconds from 100"),
])
def test_wrong_usage(words, why):
    done = subprocess.run([CTL, *words], capture_output=True)
    assert done.returncode == 2 and why in done.stderr.decode()


# ---- completion ----

def complete(line):
    """What bash would offer for the last word of a line."""
    # As bash splits it.
    words = re.findall(r"[:=]|[^\s:=]+", line)
    if line.endswith(" "):
        words.append("")
    script = ('. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1));'
              ' complete -p likesyncctl >/dev/null && _likesyncctl &&'
              ' printf "%s\\n" "${COMPREPLY[@]}"')
    out = run(["bash", "--norc", "-c", script, "bash", COMPLETION, *words])
    return set(filter(None, out.split("\n")))


def test_completion_knows_all_verbs_and_options():
    first = {verb.split()[0] for verb in verbs()}
    assert complete("likesyncctl ") == first
    assert complete("likesyncctl deadletter ") == {
        verb.split()[1] for verb in verbs() if " " in verb}
    assert complete("likesyncctl adopt ") == {"follows", "likes"}
    for verb in verbs():
        assert complete(f"likesyncctl {verb} -") == \
            options(help_of(*verb.split())), verb


@pytest.mark.parametrize("line, offered", [
    ("likesyncctl st", {"status"}),
    ("likesyncctl pa", {"pause"}),
    ("likesyncctl x", set()),
    ("likesyncctl -t 5 dr", {"drain"}),
    ("likesyncctl --socket=/run/x ve", {"verify"}),
    ("likesyncctl -s tcp:127.0.0.1:1234 deadletter d", {"drop"}),
    ("likesyncctl -s unix:/run/x adopt f", {"follows"}),
    ("likesyncctl adopt follows ", set()),
    ("likesyncctl status ", set()),
    ("likesyncctl verify --re", {"--repair"}),
    ("likesyncctl -t ", set()),
])
def test_completion(line, offered):
    assert complete(line) == offered


def test_completion_of_files(tmp_path):
    (tmp_path / "admin one").touch()
    for before in ("-s ", "--socket ", "--socket=", "--password-file ",
                   "-s unix:", "--socket=unix:"):
        assert complete(f"likesyncctl {before}{tmp_path}/ad") == {
            f"{tmp_path}/admin one"}
    # Nothing is there yet: what this directory has.
    for before in ("-s ", "--socket=", "-s unix:"):
        assert complete(f"likesyncctl {before}") == set(os.listdir()), before
    assert complete("likesyncctl --timeout=") == set()
