# SPDX-License-Identifier: MIT
"""Redis, started by the tests, and clients of it and of the daemon."""
import contextlib
import signal
import subprocess

import redis as redis_py
from redis.backoff import NoBackoff
from redis.retry import Retry

try:
    from redis._parsers.base import BaseParser
except ImportError:  # before 5.0
    from redis.connection import BaseParser

from processes import Server, free_port, wait_for

# Newer ones take the code away from the text of this error.
BaseParser.EXCEPTION_CLASSES.pop("TRYAGAIN", None)


class UnixConnection(redis_py.UnixDomainSocketConnection):
    """redis-py 4.3 words a read error with the host and port of its
    connection, which one on a unix socket does not have."""

    host, port = "unix", 0


def resp_client(socket_path, timeout=30.0, decode=True):
    """A plain client that never sends anything twice by itself."""
    return redis_py.Redis(connection_pool=redis_py.ConnectionPool(
        connection_class=UnixConnection, path=str(socket_path),
        decode_responses=decode, socket_timeout=timeout,
        retry=Retry(NoBackoff(), 0)))


class Redis(Server):
    """A Redis on a unix socket. Settings are those of redis.conf, with `_`
    for `-`; without any: append-only file, everysec, no snapshots."""

    DEFAULTS = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}

    def __init__(self, bed, preload=(), primary=None, **settings):
        """`primary`: the TCP port of the one that it is a replica of."""
        super().__init__(bed, "redis", preload)
        self.settings = {**self.DEFAULTS, **settings}
        self.primary = primary
        self.socket = self.dir / "s"
        self.address = f"unix:{self.socket}"
        self.start()

    def start(self):
        # Not what a killed predecessor left: it would look like an answer.
        self.socket.unlink(missing_ok=True)
        command = ["redis-server", "--port", "0", "--unixsocket", self.socket,
                   "--dir", self.dir, "--daemonize", "no"]
        for name, value in self.settings.items():
            command += ["--" + name.replace("_", "-"), value]
        if self.primary:
            command += ["--replicaof", "127.0.0.1", self.primary]
        self.spawn(command)
        self.wait_up(self.answers)

    def answers(self):
        with contextlib.suppress(redis_py.RedisError):
            with contextlib.closing(self.client(timeout=5)) as client:
                return client.ping()
        return False

    def stop(self):
        """Asks again: it refuses while it writes its first AOF, as it does
        after it has become a replica."""
        for _ in range(10):
            if not self.running():
                return
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(self.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
        super().stop()

    def restart(self):
        """Stops it as Debian would (what is in the AOF is written), starts it
        again: scripts and connections are gone, data is there."""
        self.stop()
        self.start()

    def client(self, timeout=30.0, decode=True):
        return resp_client(self.socket, timeout, decode)

    def ask(self, *command):
        with contextlib.closing(self.client()) as client:
            return client.execute_command(*command)

    def tcp_address(self):
        """Where it listens on TCP, from the first time that this is asked:
        replication knows nothing else."""
        if "port" not in self.settings:
            port = free_port()
            self.ask("CONFIG", "SET", "port", port)
            self.settings["port"] = port
        return f"tcp:127.0.0.1:{self.settings['port']}"

    def replica(self, through=None, preload=(), **settings):
        """A replica of it, with the same settings unless told otherwise, that
        has all its data; `through`: a link to tcp_address()."""
        own = self.tcp_address()
        port = through.port if through else int(own.rpartition(":")[2])
        # Else it waits for more replicas before it sends anything, for five
        # seconds, and when it ends for those that are behind, for ten.
        for name in ("repl-diskless-sync-delay", "shutdown-timeout"):
            self.ask("CONFIG", "SET", name, 0)
            self.settings[name] = 0
        settings = {**self.settings, "port": free_port(), **settings}
        replica = Redis(self.bed, preload, port, **settings)
        self.wait_replica(replica)
        return replica

    def wait_replica(self, replica, timeout=30.0):
        """Until a replica has all that this one has by now."""
        offset = self.ask("INFO", "replication")["master_repl_offset"]

        def has_it():
            info = replica.ask("INFO", "replication")
            return info.get("master_link_status") == "up" and \
                info["slave_repl_offset"] >= offset
        wait_for(has_it, timeout, f"{replica.dir.name} to follow")

    def promote(self):
        """A replica becomes a primary, with what it has."""
        self.primary = None
        self.ask("REPLICAOF", "NO", "ONE")

    def follow(self, primary, through=None):
        """It becomes a replica of another, and drops what that one lacks."""
        address = primary.tcp_address()
        self.primary = through.port if through \
            else int(address.rpartition(":")[2])
        self.ask("REPLICAOF", "127.0.0.1", self.primary)
