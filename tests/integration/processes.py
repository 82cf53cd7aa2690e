# SPDX-License-Identifier: MIT
"""Processes of the test bed: how they are started, watched and ended."""
import contextlib
import os
import pathlib
import pwd
import re
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What systemd, libpq and the tests themselves tell a process by environment:
# none of it is meant for a server of the bed.
NOT_INHERITED = re.compile(
    r"NOTIFY_SOCKET|JOURNAL_STREAM|LISTEN_|PG|LIKESYNCD_")


HELD_PORTS = []         # sockets


def free_port():
    """A port of 127.0.0.1 that nobody else is given while this process lives, but
    a server can listen on, as servers set SO_REUSEADDR: Linux lets them where the
    other one has it, too, and does not listen."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    HELD_PORTS.append(holder)
    return holder.getsockname()[1]


class Failed(AssertionError):
    """The bed could not do what it was asked to."""


def wait_for(condition, timeout=30.0, what="a condition"):
    """Returns the first true value of condition(); fails after `timeout` s."""
    deadline = time.monotonic() + timeout
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {timeout} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def unprivileged_user():
    """PostgreSQL refuses to run as root. None: run as we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise Failed("run as root, but there is neither a user postgres nor nobody")


# What the parent's end sends is asked for after the fork, which the parent may not
# have lived to see.
WITH_PARENT = '[ "$PPID" -eq "$0" ] && exec "$@"'


def wrapped(command, user=None, death_signal=None):
    """The command, run by setpriv as another user, and with a signal for when
    its parent ends."""
    wrapper = []
    if user:
        group = pwd.getpwnam(user).pw_gid
        wrapper += ["--reuid", user, "--regid", str(group), "--init-groups"]
    if death_signal:
        wrapper += ["--pdeathsig", death_signal]
    if wrapper:
        wrapper = ["setpriv", *wrapper, "--"]
    if death_signal:
        wrapper += ["sh", "-c", WITH_PARENT, str(os.getpid())]
    return [*wrapper, *map(str, command)]


def run_status(command, cwd=None):
    """Runs a short command: (exit status, output with stderr)."""
    done = subprocess.run([str(part) for part in command], cwd=cwd,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)
    return done.returncode, done.stdout.decode(errors="replace")


def run(command, cwd=None):
    """Runs a short command that must succeed; returns its output."""
    status, output = run_status(command, cwd)
    if status != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit status {status}\n"
                     f"{output}")
    return output


class Server:
    """A process of the bed, its log, and the signals it is sent."""

    stop_signal = signal.SIGTERM
    death_signal = "KILL"

    def __init__(self, bed, kind, preload=()):
        """`preload`: libraries that change what the process sees (shims.py of
        the campaign); each start of it has them."""
        self.bed = bed
        self.preload = tuple(preload)
        self.dir = bed.make_dir(kind)
        self.log = self.dir / "log"
        self.process = None
        self.exit_seen = False  # a test has asked how it ended
        self.resumed_at = 0.0   # time.monotonic()
        bed.servers.append(self)

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process is not None and self.process.poll() is None

    def spawn(self, command, user=None, env=None, pass_fds=()):
        """Runs a command as this server's process; its output goes to log."""
        if threading.current_thread() is not threading.main_thread():
            raise Failed("servers are started from the main thread only")
        if self.running():
            raise Failed(f"{self.dir.name} runs already")
        death_signal = None if self.bed.keep else self.death_signal
        inherited = {name: value for name, value in os.environ.items()
                     if not NOT_INHERITED.match(name)}
        self.exit_seen = False
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                wrapped([*self.preload_words(), *command], user, death_signal),
                stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, cwd=self.dir,
                env={**inherited, **(env or {})},
                pass_fds=pass_fds, start_new_session=True)

    def preload_words(self):
        """In front of the program itself: not into what starts it."""
        if not self.preload:
            return []
        env = {"LD_PRELOAD": ":".join(str(shim.library)
                                      for shim in self.preload)}
        for shim in self.preload:
            env.update(shim.env())
        return ["env", *(f"{name}={value}" for name, value in env.items())]

    def signal(self, number):
        if not self.running():
            raise Failed(f"{self.dir.name} does not run")
        self.process.send_signal(number)

    def wait_exit(self, timeout=30.0):
        """The exit status (negative: the signal that ended it)."""
        self.exit_seen = True
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.dir.name} (pid {self.pid}) still runs after "
                         f"{timeout} s") from None

    def wait_up(self, answers, timeout=30.0):
        """Waits until answers() is true, and fails at once if it exits."""
        def up():
            if not self.running():
                raise Failed(f"{self.dir.name} exited with "
                             f"{self.process.returncode} at its start:\n"
                             f"{self.log_tail(20)}")
            return answers()
        try:
            wait_for(up, timeout, f"{self.dir.name} to answer")
        except Failed as error:
            raise Failed(f"{error}\n{self.log_tail(20)}") from None
        for shim in self.preload:
            # For the loader that is only a line in the log.
            if not shim.loaded():
                raise Failed(f"{self.dir.name} runs without {shim.library}")

    def kill9(self):
        self.signal(signal.SIGKILL)
        self.wait_exit()

    def pause(self):
        """SIGSTOP, and waits until it has stopped."""
        self.signal(signal.SIGSTOP)
        wait_for(lambda: process_state(self.pid) == "T", 10, "SIGSTOP")

    def resume(self):
        self.resumed_at = time.monotonic()
        self.signal(signal.SIGCONT)

    def stop(self):
        """Ends it as gently as it can be within a short time."""
        if not self.running():
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log_text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_tail(self, lines=60):
        return "\n".join(self.log_text().splitlines()[-lines:])

    def rss_bytes(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.M)[1]) * 1024


def process_state(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0]
