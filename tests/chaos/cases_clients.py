# SPDX-License-Identifier: MIT
"""Cases of clients that do not do as they should: they send everything again and
everywhere, never read, or vanish in the middle of a request."""
import contextlib
import random
import select
import socket
import struct
import time

import bed  # noqa: F401
from case import case
from clients import Client, words_of
from harness import Failed
from judge import ALL, NONE
from record import ACKED
from wire import Wire, encode

CROWD = 1000            # the number of a client behind all those of the load
MOST_BYTES = 16 * 2**20
PAUSED = 'likesyncd_clients_paused_total{limit="output"}'


class Resender(Client):
    """Sends each event twice to each daemon, at the same time."""

    def __init__(self, run):
        super().__init__(run.load, run.daemons[0].socket, CROWD)
        self.daemons = run.daemons
        self.random.shuffle(self.pairs)

    def send(self, events):
        twice = [event for event in events for _ in range(2)]
        data = b"".join(encode(*words_of(event)) for event in twice)
        with contextlib.ExitStack() as stack:
            sent = []
            for daemon in self.daemons:
                wire = stack.enter_context(Wire(daemon.socket))
                sent.append((wire, [self.record.send(e) for e in twice]))
                wire.send(data)
            for wire, requests in sent:
                for request in requests:
                    self.answered(request, wire.read())

    def round(self, want):
        return [self.record.event(self.number, *pair, want, pair in self.timed)
                for pair in self.pairs[:100]]


def judge_resent(run, events):
    """One answer of each event says that it changed something."""
    for event in events:
        ones = sum(request.answer == 1 for request in event.requests)
        sure = all(request.outcome == ACKED for request in event.requests)
        if ones > 1 or (sure and ones == 0):
            run.fail("answer", f"{ones} of them changed something: {event}")


@case("clients_resend", "clients send each event four times, to two daemons at"
      " once, with the same time and without; and old ones again", daemons=2,
      answers=NONE)
def clients_resend(run):
    resender, old = Resender(run), []
    for n in range(run.rounds(8)):
        run.fault("everything is sent four times")
        events = resender.round(1 - n % 2)
        resender.send(events)
        judge_resent(run, events)
        resender.send(old)              # what is newer stays
        old = [event for event in events if event.t]
        run.load.wait_acked(run.random.randint(1, 50))


class Crowd:
    """Clients of one connection each, every pair asked for once: what one of them
    left behind may come later than what the next one sends."""

    def __init__(self, run):
        self.run, self.random, self.record = run, run.random, run.record
        self.user = 1000 * (CROWD + 1)

    def event(self, chance):
        self.user += 1
        kind = chance.choice(["like", "follow"])
        return self.record.event(CROWD, kind, (self.user, 900), 1,
                                 chance.random() < 0.5)

    def connect(self):
        daemon = self.random.choice(self.run.daemons)
        is_tcp = self.random.random() < 0.5
        sock = socket.socket(socket.AF_INET if is_tcp else socket.AF_UNIX)
        sock.settimeout(30)
        sock.connect(("127.0.0.1", daemon.port) if is_tcp
                     else str(daemon.socket))
        return sock

    def leave(self, sock):
        """By FIN; or by RST, which on a unix socket is a close with something
        unread."""
        how = self.random.choice(["FIN", "RST"])
        if how == "RST" and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                            struct.pack("ii", 1, 0))
        elif how == "FIN":
            sock.shutdown(socket.SHUT_WR)
        sock.close()
        return how

    def vanish(self):
        """In the middle of a pipeline, mostly within a request; what was not
        whole was never asked for, and must not be found anywhere."""
        events = [self.event(self.random) for _ in range(self.random.randint(1, 30))]
        data = [encode(*words_of(event)) for event in events]
        whole = self.random.randrange(len(events))
        part = self.random.randrange(len(data[whole]))
        pause = self.random.choice([0, self.random.uniform(0, 0.05)])
        requests = [self.record.send(event) for event in events[:whole]]
        sock = self.connect()
        with contextlib.suppress(OSError):
            sock.sendall(b"".join(data[:whole]) + data[whole][:part])
            time.sleep(pause)
        how = self.leave(sock)
        for request in requests:
            self.record.lost_answer(request)
        self.run.fault(f"gone by {how} after {whole} requests and {part} bytes")

    def never_read(self):
        """Until the daemon reads no more of it. How many events that takes is
        not by the seed: they have chances of their own."""
        chance = random.Random(self.random.random())
        sock, sent, rest = self.connect(), 0, b""
        filler = encode("ECHO", b"x" * 2000)
        sock.setblocking(False)
        while select.select([], [sock], [], 1.0)[1]:
            if not rest:
                event = self.event(chance)
                self.record.lost_answer(self.record.send(event))
                rest = encode(*words_of(event)) + 20 * filler
            try:
                n = sock.send(rest)
            except BlockingIOError:
                continue
            rest, sent = rest[n:], sent + n
            if sent > MOST_BYTES:
                raise Failed(f"all of {sent} bytes were read")
        self.run.fault(f"never reads: no more taken of it after {sent} bytes")
        return sock


@case("clients_vanish", "clients vanish in the middle of a request, by FIN and by"
      " RST", daemons=2, daemon={"tcp": True}, answers=ALL)
def clients_vanish(run):
    crowd = Crowd(run)
    for _ in range(run.rounds(60)):
        crowd.vanish()
        if run.random.random() < 0.2:
            run.load.wait_acked(run.random.randint(1, 50))


@case("clients_never_read", "clients send and never read; others are served, and"
      " in the end they vanish", daemons=2,
      daemon={"tcp": True, "server_output_soft_bytes": 16384,
              "server_output_hard_bytes": 1048576}, answers=ALL)
def clients_never_read(run):
    crowd, socks = Crowd(run), []
    before = sum(daemon.metrics()[PAUSED] for daemon in run.daemons)
    for _ in range(run.rounds(6)):
        socks.append(crowd.never_read())
        run.load.wait_each()
        if len(socks) > 3:
            crowd.leave(socks.pop(run.random.randrange(len(socks))))
    paused = sum(daemon.metrics()[PAUSED] for daemon in run.daemons) - before
    if paused < 6:
        run.fail("case", f"only {paused} clients were made to wait")
    for sock in socks:
        crowd.leave(sock)
