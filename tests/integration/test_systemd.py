# SPDX-License-Identifier: MIT
"""What systemd is told, and the files that are installed for it."""
import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
import redis as redis_py

import harness
from servers import ROOT, Failed, run, run_status, wait_for

# systemd-analyze's exposure, from 0 (locked in) to 10.
MOST_EXPOSURE = 1.5


class Manager:
    """Stands in for systemd at a NOTIFY_SOCKET."""

    def __init__(self, path):
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)
        self.messages = []   # [{name: value}] in order of coming

    def receive(self):
        while True:
            try:
                data = self.socket.recv(65536)
            except BlockingIOError:
                return self.messages
            lines = data.decode().splitlines()
            self.messages.append(dict(line.split("=", 1) for line in lines))

    def saw(self, name, pattern="", start=0):
        """The first message from `start` on that has the name, with a value
        that matches."""
        return next((m for m in self.receive()[start:]
                     if name in m and re.search(pattern, m[name])), None)

    def wait(self, name, pattern="", start=0):
        return wait_for(lambda: self.saw(name, pattern, start),
                        what=f"{name} with {pattern!r}")

    def names(self, start=0):
        """All but STATUS and WATCHDOG, which come as time goes."""
        return [name for m in self.receive()[start:] for name in m
                if name not in ("STATUS", "WATCHDOG", "MONOTONIC_USEC")]


@pytest.fixture
def manager(bed):
    manager = Manager(bed.dir / "n")
    yield manager
    manager.socket.close()


class Managed(harness.Daemon):
    """A daemon that has the manager in its environment."""

    def __init__(self, bed, redis, pg, manager, watchdog_usec, env=None,
                 **options):
        self.manager_env = {"NOTIFY_SOCKET": str(manager.path), **(env or {})}
        if watchdog_usec:
            self.manager_env["WATCHDOG_USEC"] = str(watchdog_usec)
        super().__init__(bed, redis, pg, wait=None, **options)

    def spawn(self, command, user=None, env=None):
        super().spawn(command, user, {**(env or {}), **self.manager_env})


def start_under(manager, bed, redis, pg, watchdog_usec=None, **options):
    return Managed(bed, redis, pg, manager, watchdog_usec, **options)


# ---- notifications ----

def test_ready_when_it_listens_though_all_backends_are_away(bed, manager,
                                                            redis, pg):
    redis.stop()
    daemon = start_under(
        manager, bed, redis, pg,
        postgres_conninfo=f"host=127.0.0.1 port={harness.free_port()} "
                          "dbname=none user=nobody")
    manager.wait("READY", "^1$")
    # At once, not when somebody has looked a second time.
    with daemon.client() as client:
        assert client.execute_command("PING") is True
        with pytest.raises(Exception, match="UNAVAILABLE not recorded"):
            client.execute_command("LIKE", 7, 42)
    status = manager.wait("STATUS", r"redis: .*(refused|No such file).*"
                                    r"postgres: .*refused")
    assert "\n" not in status["STATUS"]
    # Redis comes back: told, too.
    redis.start()
    manager.wait("STATUS", r"redis: connected")
    assert manager.names() == ["READY"]


def test_status_tells_of_the_backlog(bed, manager, redis, pg):
    daemon = start_under(manager, bed, redis, pg)
    manager.wait("STATUS", r"^redis: connected; postgres: connected \(2 of 2\);"
                           r" backlog 0 rows, \d+\.\d s$")
    daemon.admin().execute_command("FLUSHER", "PAUSE")
    with daemon.client() as client:
        client.execute_command("LIKE", 7, 43)
        manager.wait("STATUS", r"; backlog 1 row, .* s; flusher paused$")
        for user in range(1203):
            client.execute_command("LIKE", user, 42)
    manager.wait("STATUS", r"; backlog 1,204 rows, .* s; flusher paused$")
    daemon.admin().execute_command("FLUSHER", "RESUME")
    manager.wait("STATUS", r"; backlog 0 rows, [\d.]+ s$",
                 len(manager.messages))


def test_status_begins_with_what_is_away(bed, manager, redis):
    """A terminal cuts it at its width."""
    own = bed.postgres().create_database()
    daemon = start_under(manager, bed, redis, own)
    manager.wait("STATUS", "^redis: connected; postgres: connected")
    bed.servers[-2].stop()
    manager.wait("STATUS", r"^postgres: .*, retry in \d+ s; redis: connected; "
                           r"backlog")
    daemon.client().execute_command("LIKE", 7, 42)
    manager.wait("STATUS", r"^postgres: .*; redis: connected; backlog "
                           r"(1 row, .*|0 rows, .*; 1 batch under way)$",
                 len(manager.messages))
    redis.stop()
    manager.wait("STATUS", r"^redis: .*, retry in \d+ m?s; postgres: .*; "
                           r"backlog \d row", len(manager.messages))


def test_status_tells_of_dead_letters(bed, manager, redis, pg):
    pg.query("ALTER TABLE user_like_post ADD CHECK (post_id <> 13)")
    daemon = start_under(manager, bed, redis, pg)
    daemon.wait_up(daemon.ready)
    daemon.client().execute_command("LIKE", 7, 13)
    manager.wait("STATUS", "; 1 dead letter$")
    # Those there are, whoever refused them.
    pg.query("INSERT INTO sync_dead_letter (kind, batch_id, owner_id, reason)"
             " SELECT 'like', n, '42', 'why' FROM generate_series(1, 1203) n")
    manager.wait("STATUS", "; 1,204 dead letters$")
    pg.query("DELETE FROM sync_dead_letter")
    manager.wait("STATUS", r"; backlog 0 rows, \d+\.\d s$",
                 len(manager.messages))


class Wordy(threading.Thread):
    """In place of PostgreSQL: says to everybody why it does not let him in, in
    Latin-1 and at length."""

    def __init__(self, directory):
        super().__init__(daemon=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{directory}/.s.PGSQL.5432")
        self.listener.listen()
        self.start()

    def run(self):
        fields = b"SFATAL\0VFATAL\0C57P03\0M" + b"\xe9\x1b" + \
            "é".encode() * 500 + b"\0\0"
        while True:
            connection = self.listener.accept()[0]
            connection.recv(65536)
            connection.sendall(b"E" + struct.pack("!I", len(fields) + 4) + fields)
            connection.close()


def test_status_has_all_parts_whatever_a_backend_says(bed, manager, redis, pg):
    Wordy(bed.dir)
    daemon = start_under(manager, bed, redis, pg,
                         postgres_conninfo=f"host={bed.dir} dbname=d user=u")
    # One that is not UTF-8 would be dropped.
    manager.wait("STATUS", r"^postgres: .*\? é+\.\.\.; redis: connected; "
                           r"backlog 0 rows")
    daemon.admin().execute_command("FLUSHER", "PAUSE")
    manager.wait("STATUS", r"é\.\.\.; redis: connected; backlog 0 rows, .*; "
                           r"flusher paused$")


def test_status_comes_with_ready(bed, manager, redis, pg):
    """Not a second later: it is what people look at after a start. Before the
    loop runs, as the watchdog's timer shows."""
    start_under(manager, bed, redis, pg, watchdog_usec=100000)
    wait_for(lambda: len(manager.receive()) >= 2, what="two messages")
    assert [list(m) for m in manager.messages[:2]] == [["READY"], ["STATUS"]]
    assert re.match(r"redis: \w.*; postgres: \w.*; backlog unknown$",
                    manager.messages[1]["STATUS"])


def test_a_daemon_that_cannot_start_is_never_ready(bed, manager, redis, pg):
    daemon = start_under(manager, bed, redis, pg,
                         server_listen=f"unix:{bed.dir}/none/s")
    assert daemon.wait_exit() not in (0, -signal.SIGKILL)
    assert manager.names() == []


def test_watchdog_is_fed_while_it_is_wanted(bed, manager, redis, pg):
    daemon = start_under(manager, bed, redis, pg, watchdog_usec=400000)
    manager.wait("READY")
    wait_for(lambda: sum("WATCHDOG" in m for m in manager.receive()) >= 5,
             what="five signs of life")
    # By the loop itself: no sign comes from one that stands still.
    daemon.pause()
    count = len(manager.receive())
    time.sleep(1)
    assert len(manager.receive()) == count
    daemon.resume()
    manager.wait("WATCHDOG", "^1$", count)


@pytest.mark.skipif(not harness.build_has("LIKESYNCD_FAULTS"),
                    reason="needs -DLIKESYNCD_FAULTS=ON")
def test_no_watchdog_from_a_loop_that_hangs(bed, manager, redis, pg):
    """Only its loop stands still; threads and signal handlers still run."""
    daemon = start_under(manager, bed, redis, pg, watchdog_usec=200000,
                         env={"LIKESYNCD_HANG": "claimed"})
    daemon.wait_up(daemon.ready)
    manager.wait("WATCHDOG")
    with daemon.client() as client:
        assert client.execute_command("LIKE", 7, 42) == 1

    def hangs():
        with daemon.client(timeout=1) as other:
            try:
                return not other.ping()
            except redis_py.TimeoutError:
                return True
    wait_for(hangs, what="the hang")
    count = len(manager.receive())
    time.sleep(1)
    assert len(manager.receive()) == count
    assert daemon.running()
    daemon.kill9()


def test_watchdog_is_fed_while_redis_hangs(bed, manager, redis, pg):
    start_under(manager, bed, redis, pg, watchdog_usec=400000,
                redis_timeout_ms=500)
    manager.wait("STATUS", "redis: connected")
    redis.pause()
    try:
        start = len(manager.receive())
        manager.wait("STATUS", r"redis: (?!connected\b)", start)
        signs = sum("WATCHDOG" in m for m in manager.receive()[start:])
        assert signs >= 1
    finally:
        redis.resume()


def test_no_watchdog_when_none_is_wanted(bed, manager, redis, pg):
    start_under(manager, bed, redis, pg)
    manager.wait("READY")
    wait_for(lambda: sum("STATUS" in m for m in manager.receive()) >= 3,
             what="three times STATUS")
    assert not manager.saw("WATCHDOG")


def test_reload_is_framed(bed, manager, redis, pg):
    daemon = start_under(manager, bed, redis, pg)
    manager.wait("READY")
    for text in ("debug", "nonsense"):      # also when the file is bad
        start = len(manager.receive())
        daemon.write_config(log_level=text)
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        daemon.sighup()
        manager.wait("READY", "^1$", start)
        assert manager.names(start) == ["RELOADING", "READY"]
        reloading = manager.saw("RELOADING", "^1$", start)
        # Type=notify-reload asks for it.
        assert before <= int(reloading["MONOTONIC_USEC"]) \
            <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_stopping_comes_first_at_sigterm(bed, manager, redis, pg):
    daemon = start_under(manager, bed, redis, pg)
    manager.wait("READY")
    daemon.wait_up(daemon.ready)
    with daemon.client() as client:
        client.execute_command("LIKE", 7, 42)
    daemon.term()
    assert manager.names() == ["READY", "STOPPING"]
    assert pg.value("SELECT count(*) FROM user_like_post") == 1


def test_it_stops_within_its_time_though_nothing_can_be_drained(
        bed, manager, redis, pg):
    daemon = start_under(manager, bed, redis, pg)
    daemon.wait_up(daemon.ready)
    daemon.admin().execute_command("FLUSHER", "PAUSE")
    with daemon.client() as client:
        client.execute_command("LIKE", 7, 42)
    redis.pause()
    try:
        daemon.term(timeout=10)
    finally:
        redis.resume()
    assert redis.client().smembers("post_set") == {"42"}


def test_no_reload_while_it_stops(bed, manager, redis, pg):
    """READY would take STOPPING back."""
    daemon = start_under(manager, bed, redis, pg)
    daemon.wait_up(daemon.ready)
    redis.pause()
    try:
        with daemon.client() as client:
            client.connection_pool.get_connection("LIKE").send_command(
                "LIKE", 7, 42)
            time.sleep(0.1)         # it is under way
            daemon.signal(signal.SIGTERM)
            manager.wait("STOPPING")
            daemon.sighup()
            assert daemon.wait_exit(10) == 0
    finally:
        redis.resume()
    assert manager.names() == ["READY", "STOPPING"]


def test_clients_are_served_while_it_drains(bed, manager, redis, pg):
    """Only for the last steps of a restart is there no daemon."""
    daemon = start_under(manager, bed, redis, pg)
    daemon.wait_up(daemon.ready)
    with contextlib.closing(pg.connect()) as connection, \
            daemon.client() as client:
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        cursor.execute("LOCK TABLE post_like IN EXCLUSIVE MODE")
        client.execute_command("LIKE", 1, 42)   # no drain can end before it
        daemon.signal(signal.SIGTERM)
        manager.wait("STOPPING")
        assert client.execute_command("LIKE", 2, 42) == 1
        with daemon.client() as other:
            assert other.execute_command("LIKE", 3, 42) == 1
        cursor.execute("ROLLBACK")
        assert daemon.wait_exit(10) == 0
    assert "all is durable" in daemon.log_text()
    assert pg.value("SELECT count(*) FROM user_like_post") == 3


def test_it_does_not_wait_for_a_postgres_that_is_away(bed, manager, redis):
    own = bed.postgres().create_database()
    daemon = start_under(manager, bed, redis, own)
    daemon.wait_up(daemon.ready)
    bed.servers[-2].stop()
    manager.wait("STATUS", "^postgres: ")
    with daemon.client() as client:
        client.execute_command("LIKE", 7, 42)
        daemon.term(timeout=10)
        assert "not all is durable yet" in daemon.log_text()
        # The client was told by the end of its connection, not left alone.
        with pytest.raises(redis_py.ConnectionError):
            client.ping()


HANGING_RESOLVER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>
int getaddrinfo(const char *node, const char *service,
                const struct addrinfo *hints, struct addrinfo **res)
{
    int (*next)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    if (node && strcmp(node, "hangs.invalid") == 0)
        sleep(60);
    return next(node, service, hints, res);
}
"""


def test_a_name_server_that_hangs_does_not_keep_it(bed, manager, redis, pg,
                                                   tmp_path):
    """A lookup cannot be interrupted; it goes with the process."""
    (tmp_path / "hang.c").write_text(HANGING_RESOLVER)
    run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "hang.so",
         tmp_path / "hang.c"])
    env = {"LD_PRELOAD": str(tmp_path / "hang.so"),
           "ASAN_OPTIONS": "exitcode=99:verify_asan_link_order=0"}
    daemon = start_under(manager, bed, redis, pg, env=env,
                         redis_address="tcp:hangs.invalid:6379")
    manager.wait("STATUS", "resolving|connecting")
    time.sleep(0.5)                 # the lookup has begun
    daemon.term(timeout=10)


def test_a_manager_that_is_not_there_does_not_stop_it(bed, redis, pg,
                                                      manager):
    manager.socket.close()
    manager.path.unlink()
    daemon = start_under(manager, bed, redis, pg)
    daemon.wait_up(daemon.ready)
    assert "service manager not told" in daemon.log_text()


# ---- the journal ----

class Journaled(harness.Daemon):
    """Its log is what JOURNAL_STREAM names."""

    def spawn(self, command, user=None, env=None):
        self.log.touch()
        stat = self.log.stat()
        super().spawn(command, user, {
            **(env or {}), "JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino}"})


def test_lines_for_the_journal_have_their_level(bed, redis, pg):
    daemon = Journaled(bed, redis, pg)
    daemon.write_config(flush_batch_rows=0)
    daemon.sighup()
    wait_for(lambda: "not reloaded" in daemon.log_text(), what="the reload")
    daemon.term()
    daemon.start(wait=None)
    assert daemon.wait_exit() == 1
    lines = daemon.log_text().splitlines()
    assert [line for line in lines
            if not re.match(r"<[3467]>[a-z_]+: ", line)] == []
    assert any(line.startswith("<6>main: stopping") for line in lines)
    # A fault of the configuration is one whether it runs or starts.
    assert sum("<3>config: " in line and "batch_rows" in line
               for line in lines) == 2


def test_a_backend_that_is_away_is_one_line(bed, manager, redis, pg):
    """However often it is tried: repeats come once a minute."""
    daemon = start_under(manager, bed, redis, pg)
    daemon.wait_up(daemon.ready)
    redis.stop()
    start = len(manager.receive())
    for tries in ("[1-9]\\d* ms", "1 s", "2 s"):     # it waits longer each time
        manager.wait("STATUS", f"^redis: .*, retry in {tries}; ", start)
    assert len(re.findall("redis: cannot connect", daemon.log_text())) == 1


# ---- installed files ----

@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The root of an installation of this build, and its prefix in it."""
    root = tmp_path_factory.mktemp("root")
    env = {**os.environ, "DESTDIR": str(root)}
    subprocess.run(["cmake", "--install", str(harness.BUILD)], env=env,
                   check=True, stdout=subprocess.DEVNULL)
    cache = (harness.BUILD / "CMakeCache.txt").read_text()
    prefix = re.search(r"^CMAKE_INSTALL_PREFIX:\w+=/(.*)$", cache, re.M)[1]
    return root, root / prefix


# As systemd loads them: a template by the name of an instance.
UNITS = {name: name.replace("@.", "@one.") for name in (
    "likesyncd.service", "likesyncd.socket", "likesyncd-admin.socket",
    "likesyncd-metrics.socket",
    "likesyncd@.service", "likesyncd@.socket", "likesyncd-admin@.socket")}
SERVICES = [name for name in UNITS if name.endswith(".service")]


def read_unit(installed, name):
    return (installed[1] / "lib/systemd/system" / name).read_text()


def settings(text):
    """{name: value} of a unit, {name: [value, ...]} where it has several."""
    found = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", text, re.M):
        found.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0]
            for name, values in found.items()}


def rooted_units(installed, directory):
    """All units as they are installed, but for the root that they are in."""
    root, _ = installed
    for name, loaded in UNITS.items():
        unit = read_unit(installed, name)
        command = re.search(r"^ExecStart=(\S+) -c (\S+)$", unit, re.M)
        if command:
            daemon, config = command.groups()
            assert (root / daemon.lstrip("/")).is_file()
            unit = unit.replace(command[0],
                                f"ExecStart={root}{daemon} -c {root}{config}")
        (directory / name).write_text(unit)
        (directory / loaded).write_text(unit)
    return directory


def test_what_is_installed_is_complete(installed):
    root, prefix = installed
    for file in ("sbin/likesyncd", "bin/likesyncctl",
                 "share/bash-completion/completions/likesyncctl",
                 "share/likesyncd/sql/schema.sql",
                 "share/likesyncd/sql/roles.sql",
                 "share/likesyncd/sql/views.sql",
                 "share/likesyncd/sql/likers.sql",
                 "share/doc/likesyncd/README.md",
                 "share/doc/likesyncd/CHANGELOG.md",
                 "share/doc/likesyncd/LICENSE",
                 *(f"lib/systemd/system/{name}" for name in UNITS),
                 "lib/sysusers.d/likesyncd.conf",
                 "lib/tmpfiles.d/likesyncd.conf"):
        assert (prefix / file).is_file(), file
    left = [path for path in prefix.rglob("*")
            if path.is_file() and re.search(r"@CMAKE\w*@",
                                            path.read_bytes()
                                            .decode(errors="ignore"))]
    assert left == [], "not filled in"
    config = next(root.rglob("etc/likesyncd/likesyncd.ini"))
    code, output = run_status([prefix / "sbin/likesyncd", "--check-config",
                               "-c", config])
    assert code == 0, output


def test_an_installed_configuration_is_not_written_over(installed):
    root, _ = installed
    config = next(root.rglob("etc/likesyncd/likesyncd.ini"))
    before = config.read_text()
    try:
        config.write_text("; my own\n")
        subprocess.run(["cmake", "--install", str(harness.BUILD)], check=True,
                       env={**os.environ, "DESTDIR": str(root)},
                       stdout=subprocess.DEVNULL)
        assert config.read_text() == "; my own\n"
    finally:
        config.write_text(before)


def analyze(*arguments):
    """systemd-analyze is there: tests/lib/deps.sh names its package."""
    if not shutil.which("systemd-analyze"):
        raise Failed("systemd-analyze is missing: install the package systemd")
    return run_status(["systemd-analyze", *arguments])


def test_the_units_are_such_that_systemd_understands(installed, tmp_path):
    rooted_units(installed, tmp_path)
    for loaded in UNITS.values():
        code, output = analyze("verify", "--man=no", "--recursive-errors=no",
                               tmp_path / loaded)
        assert code == 0, output
        # It warns of what it does not know, and is content.
        assert "likesyncd" not in output, output
    for loaded in UNITS.values():
        unit = tmp_path / loaded
        unit.write_text(unit.read_text() + "[Unit]\nNonsense=yes\n")
        assert "Nonsense" in analyze("verify", "--man=no", unit)[1]


@pytest.mark.parametrize("name", SERVICES)
def test_the_unit_is_locked_in(installed, tmp_path, name):
    unit = rooted_units(installed, tmp_path) / UNITS[name]
    code, output = analyze("security", "--no-pager", "--offline=true",
                           f"--threshold={int(MOST_EXPOSURE * 10)}", unit)
    assert code == 0, output
    score = float(re.search(r"exposure level for \S+: (\d+\.\d+)", output)[1])
    assert score <= MOST_EXPOSURE


def addresses(printed, option):
    return re.search(rf"^{option} = (.*)$", printed, re.M)[1].split()


def test_the_units_fit_the_daemon(installed):
    """What they must agree about, and nothing else makes sure of."""
    _, prefix = installed
    unit = settings(read_unit(installed, "likesyncd.service"))
    # It ends within 10 s.
    assert unit["TimeoutStopSec"] == "15"
    assert unit["StartLimitIntervalSec"] == "0"
    assert (unit["Restart"], unit["Type"]) == ("always", "notify")
    # The default sockets are in the unit's runtime directory, which stays, as
    # sockets do that are not ours; the user is the role of sql/roles.sql.
    printed = run([harness.BUILD / "likesyncd", "--print-config", "-c",
                   "/dev/null"])
    sockets = re.findall(r"unix:(/run/\S+)", printed)
    assert len(sockets) == 2
    for path in sockets:
        assert os.path.dirname(path) == f"/run/{unit['RuntimeDirectory']}"
    assert unit["RuntimeDirectoryPreserve"] == "yes"
    roles = (prefix / "share/likesyncd/sql/roles.sql").read_text()
    assert f"\\set daemon_role {unit['User']} " in roles
    clients = int(re.search(r"^max_clients = (\d+)", printed, re.M)[1])
    assert int(unit["LimitNOFILE"]) > clients + 1000


@pytest.mark.parametrize("name, option, prefix", [
    ("likesyncd.socket", "listen", ""),
    ("likesyncd-admin.socket", "admin_listen", "admin_")])
def test_the_socket_units_are_as_the_defaults(installed, name, option, prefix):
    """The same addresses and modes, whoever makes the sockets."""
    unit = settings(read_unit(installed, name))
    service = settings(read_unit(installed, "likesyncd.service"))
    printed = run([harness.BUILD / "likesyncd", "--print-config", "-c",
                   "/dev/null"])
    listen = unit["ListenStream"]
    assert [f"unix:{a}" if a[0] == "/" else f"tcp:{a}" for a in
            (listen if isinstance(listen, list) else [listen])] == \
        addresses(printed, option)
    assert [unit["SocketMode"]] == addresses(printed, f"{prefix}socket_mode")
    assert (unit["SocketUser"], unit["SocketGroup"]) == \
        (service["User"], service["Group"])
    assert unit["Service"] == "likesyncd.service"
    assert name in service["Wants"][0].split()
    assert name in service["Also"].split()


def test_the_socket_of_http_is_as_the_default(installed):
    unit = settings(read_unit(installed, "likesyncd-metrics.socket"))
    printed = run([harness.BUILD / "likesyncd", "--print-config", "-c",
                   "/dev/null"])
    assert unit["ListenStream"] == re.search(
        r"^\[metrics\]\n(?:#.*\n)*listen = (.*)$", printed, re.M)[1]
    assert unit["FileDescriptorName"] == "metrics"
    assert unit["Service"] == "likesyncd.service"
    # Only who wants it has it.
    assert "metrics" not in read_unit(installed, "likesyncd.service")


def test_the_socket_of_http_is_opened_while_the_service_restarts(installed):
    """A client would start the service between a stop and a start, and systemd
    opens no socket of one that runs."""
    command = "systemctl restart likesyncd.service likesyncd-metrics.socket"
    told = read_unit(installed, "likesyncd-metrics.socket"), \
        (ROOT / "README.md").read_text()
    for text in told:
        assert command in text
        assert "systemctl start likesyncd-metrics.socket" not in text


def test_an_instance_differs_from_the_one_service_by_its_names(installed):
    """Everything else is made from one file."""
    def without_names(text):
        text = re.sub(r"^(#.*|Description=.*)\n", "", text, flags=re.M)
        return text.replace("@%i", "")

    one = without_names(read_unit(installed, "likesyncd.service"))
    instance = without_names(read_unit(installed, "likesyncd@.service"))
    assert "%i.ini" in instance
    assert instance.replace("/%i.ini", "/likesyncd.ini") == one
    # Two instances have nothing in common.
    for name in ("likesyncd@.socket", "likesyncd-admin@.socket"):
        unit = settings(read_unit(installed, name))
        assert re.fullmatch(r"/run/likesyncd/%i(-admin)?\.sock",
                            unit["ListenStream"])
        assert unit["Service"] == "likesyncd@%i.service"


def test_the_units_reload_reloads(installed, daemon):
    """Also where there is nothing but a shell in the path."""
    _, prefix = installed
    unit = (prefix / "lib/systemd/system/likesyncd.service").read_text()
    command = shlex.split(re.search(r"^ExecReload=(.*)$", unit, re.M)[1])
    assert command[0] == "/bin/sh"
    subprocess.run(command, check=True,
                   env={"MAINPID": str(daemon.pid), "PATH": "/nowhere"})
    wait_for(lambda: "config: reloaded" in daemon.log_text(),
             what="the reload")


def test_users_and_files_of_the_unit_can_be_made(installed, tmp_path):
    _, prefix = installed
    (tmp_path / "etc").mkdir()
    run(["systemd-sysusers", f"--root={tmp_path}",
         prefix / "lib/sysusers.d/likesyncd.conf"])
    group = (tmp_path / "etc/group").read_text()
    gid = re.search(r"^likesync:x:(\d+):", group, re.M)[1]
    assert re.search(rf"^likesyncd:x:\d+:{gid}:.*/nologin$",
                     (tmp_path / "etc/passwd").read_text(), re.M)
    if os.geteuid() != 0:
        return      # only root can give files away
    run(["systemd-tmpfiles", f"--root={tmp_path}", "--create",
         "--prefix=/run/likesyncd", prefix / "lib/tmpfiles.d/likesyncd.conf"])
    made = (tmp_path / "run/likesyncd").stat()
    assert (oct(made.st_mode & 0o777), made.st_gid) == ("0o750", int(gid))
