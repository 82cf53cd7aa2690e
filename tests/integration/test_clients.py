# SPDX-License-Identifier: MIT
"""Redis clients as they are, from Debian and from npm: tests/clients/ has a
program for each, and its README.md says what they do and print."""
import dataclasses
import fcntl
import json
import os
import re
import shutil
import subprocess

import pytest
import redis as redis_py

import harness
from servers import ROOT, run, wait_for

PROGRAMS = ROOT / "tests" / "clients"
# Each build has its own copy of what npm brings.
NODE = harness.BUILD / "clients"
NODE_FILES = ("package.json", "package-lock.json", ".npmrc")
PASSWORD = "correct horse, battery staple"

# What the programs print, but for their version and the end of the error.
PRINTED = {"ping": "PONG", "pipeline": "1000", "array": "1,0",
           "error": "ERR invalid post id 'nobody'", "restart": "",
           "again": "1"}


@dataclasses.dataclass(frozen=True)
class Client:
    name: str
    command: str  # interpreter, program, arguments
    proto: int = 2  # what its connection turns out to speak
    library: str = ""  # what it says it is, by CLIENT SETINFO
    prints: dict = dataclasses.field(default_factory=dict)  # beyond PRINTED
    connected: bool = True  # has a connection while the daemon restarts
    random: bool = False  # the users of its pipeline are not 1 to 1000
    needs_node: int = 0
    needs_redis_py: int = 0


CLIENTS = [
    Client("redis-cli -2", "bash redis_cli.bash 2"),
    Client("redis-cli -3", "bash redis_cli.bash 3", proto=3),
    Client("redis-benchmark", "bash redis_benchmark.bash 2",
           prints={"array": "100"}, connected=False, random=True),
    Client("redis-benchmark -3", "bash redis_benchmark.bash 3", proto=3,
           prints={"array": "100"}, connected=False, random=True),
    Client("redis-py", "/usr/bin/python3 redis_py.py 2"),
    Client("redis-py RESP3", "/usr/bin/python3 redis_py.py 3", proto=3,
           needs_redis_py=5),
    Client("phpredis", "php phpredis.php", prints={"pconnect": "same"}),
    Client("Ruby redis", "ruby redis_rb.rb"),
    Client("Perl Redis", "perl redis_perl.pl"),
    Client("ioredis 5", "node ioredis.js ioredis-5", library="ioredis"),
    Client("ioredis 6", "node ioredis.js ioredis", proto=3,
           library="ioredis", needs_node=20),
    Client("node-redis 5", "node node_redis.js redis-5",
           library="node-redis"),
    Client("node-redis 6", "node node_redis.js redis", proto=3,
           library="node-redis", needs_node=20),
]


# ---- what the clients run on ----

def node_major():
    return int(run(["node", "--version"]).lstrip("v").partition(".")[0])


def skip_if_older(what, has, needs):
    if has < needs:
        pytest.skip(f"it needs {what} {needs}, and this is {has}")


@pytest.fixture(scope="session")
def node_modules():
    """What package-lock.json names, installed once for this build."""
    wanted = (PROGRAMS / "package-lock.json").read_text()
    installed = NODE / "installed"
    NODE.mkdir(exist_ok=True)
    with (NODE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists() or installed.read_text() != wanted:
            installed.unlink(missing_ok=True)
            for name in NODE_FILES:
                shutil.copy(PROGRAMS / name, NODE)
            run(["npm", "ci"], cwd=NODE)
            installed.write_text(wanted)
    return NODE / "node_modules"


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client_environment(request):
    """The client, and what its program needs to find its library."""
    client = request.param
    skip_if_older("redis-py", redis_py.VERSION[0], client.needs_redis_py)
    environment = {}
    if client.command.startswith("node "):
        skip_if_older("Node", node_major(), client.needs_node)
        modules = request.getfixturevalue("node_modules")
        environment["NODE_PATH"] = str(modules)
    return client, environment


class Program:
    """A program of tests/clients/ under way."""

    def __init__(self, bed, command, environment):
        directory = bed.make_dir("client")
        self.output = directory / "out"
        self.errors = directory / "err"
        with self.output.open("wb") as out, self.errors.open("wb") as err:
            self.process = subprocess.Popen(
                command.split(), cwd=PROGRAMS, stdin=subprocess.PIPE,
                stdout=out, stderr=err, env={**os.environ, **environment})

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def printed(self):
        """{first word: the rest of its line}"""
        parts = (line.partition(" ")
                 for line in self.output.read_text().splitlines())
        return {word: rest for word, _, rest in parts}

    def wait_restart(self):
        """Until it has done all that comes before."""
        wait_for(lambda: "restart" in self.printed()
                 or self.process.poll() is not None, 60, "the client")
        assert "restart" in self.printed(), self.shown()

    def go_on(self):
        self.process.communicate(b"\n", timeout=60)
        assert self.process.returncode == 0, self.shown()

    def shown(self):
        return (f"exit status {self.process.poll()}\n"
                f"{self.output.read_text()}{self.errors.read_text()}")


# ---- the tests ----

def check_connection(client, daemon):
    """What the daemon knows of the client while it is connected."""
    with daemon.admin() as admin:
        others = [seen for seen in admin.client_list()
                  if int(seen["id"]) != admin.client_id()]
    assert len(others) == client.connected, others
    for seen in others:
        assert int(seen["resp"]) == client.proto, seen
        assert client.library in seen["lib-name"], seen


def check_rows(client, pg):
    """One user per LIKE that was answered with 1, and no other."""
    likes, = pg.query("SELECT like_count FROM post_like WHERE post_id = 42")
    users = [user for user, in pg.query(
        "SELECT user_id FROM user_like_post WHERE post_id = 42"
        " AND status = 1 ORDER BY user_id")]
    assert likes == (len(users),)
    if client.random:
        # Of two thousand million: ten doubles would be no accident.
        assert 1001 in users and 991 <= len(users) <= 1001
    else:
        assert users == list(range(1, 1002))
    harness.check_exact(pg)


def check_printed(client, printed):
    for word, expected in {**PRINTED, **client.prints}.items():
        assert printed.get(word, "not printed").startswith(expected), word
    assert printed.keys() == {"version", *PRINTED, *client.prints}


@pytest.mark.parametrize("password", ["", PASSWORD],
                         ids=["unix", "tcp and password"])
def test_client(client_environment, bed, redis, pg, password, capsys):
    """Connects, pipelines, reads, gets an error, and reconnects by itself
    when the daemon was restarted."""
    client, environment = client_environment
    options = {}
    if password:
        secret = bed.dir / "password"
        secret.write_text(password)
        options["server_password_file"] = secret
    daemon = bed.daemon(redis, pg, tcp=True, **options)
    environment.update(
        SOCKET="" if password else str(daemon.socket),
        PORT=str(daemon.port), PASSWORD=password)
    with Program(bed, client.command, environment) as program:
        program.wait_restart()
        check_connection(client, daemon)
        daemon.restart()
        program.go_on()
        printed = program.printed()
        check_printed(client, printed)
    daemon.drain()
    check_rows(client, pg)
    with capsys.disabled():
        print(f"\n{client.name} {printed['version']}: ", end="")


def test_readme_names_the_versions_from_npm():
    """Its table says what was run, which is what package.json asks for."""
    wanted = json.loads((PROGRAMS / "package.json").read_text())
    readme = (ROOT / "README.md").read_text()
    versions = {"ioredis": [], "node-redis": []}
    for name, version in wanted["dependencies"].items():
        kind = "ioredis" if name.startswith("ioredis") else "node-redis"
        versions[kind].append(version.rpartition("@")[2])
    for kind, both in versions.items():
        row, = re.findall(rf"^\| {kind} .*$", readme, re.M)
        assert all(version in row for version in both), row
