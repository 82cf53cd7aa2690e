# SPDX-License-Identifier: MIT
"""The process of one link of the fault proxy: see proxy.py, which starts it.

    proxy_process.py CONTROL_FD LISTEN_ADDRESS TARGET_ADDRESS SEED

It ends when its control socket is closed. Each line on that socket is a request
in JSON, and is answered by one.

A connection has two pipes, one for each direction. A pipe's reader takes what
arrives into a bounded queue, its writer applies the mode and passes it on. The
end of a stream waits in the queue like any byte, so that a blackhole hides it,
too. Bytes are never dropped out of a stream that goes on: what a blackhole took
is delivered when it is over, as TCP would have repeated it."""
import asyncio
import contextlib
import json
import os
import random
import socket
import sys
import time
import traceback

from proxy_modes import (WHOLE, Mode, close_reset, delivered, new_socket,
                         no_delay, parse, unread)

UP, DOWN = "up", "down"     # from the client to the server, and back
CHUNK = 65536
QUEUE_CHUNKS = 64
# How long what may be the beginning of a pattern waits for the rest of it.
HOLD_SECONDS = 1.0
RESET = None                # in a queue: the stream ended by a reset


class Ended(Exception):
    """The connection is over: nothing more may be written."""


class Pipe:
    """One direction of a connection."""

    def __init__(self, conn, direction, mode):
        self.conn = conn
        self.direction = direction
        self.queue = asyncio.Queue(QUEUE_CHUNKS)
        self.changed = asyncio.Event()
        self.other = None
        self.due = 0
        self.held = b""
        self.broken = False     # its receiver takes nothing any more
        self.done = False       # its receiver was told that it ended
        self.set_mode(mode)

    def set_mode(self, mode):
        self.mode = mode
        self.passed = 0         # bytes, since this mode is on
        self.tail = b""
        self.changed.set()

    async def until_changed(self, timeout=None):
        self.changed.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.changed.wait(), timeout)

    async def read(self, src):
        data = b"."
        while data:
            try:
                data = await asyncio.get_running_loop().sock_recv(src, CHUNK)
            except OSError:
                data = RESET
            # Later, but never in front of what came before.
            self.due = max(self.due, time.monotonic() + self.mode.delay())
            await self.queue.put((self.due, data))

    async def write(self, dst):
        while not self.done:
            due, data = await self.next()
            mode = self.mode
            while mode is self.mode and due > time.monotonic():
                await self.until_changed(due - time.monotonic())
            await self.gate()
            if data:
                await self.forward(dst, self.held + data)
            else:
                await self.end(dst, data)

    async def next(self):
        """What comes next, or what was held back when that does not come."""
        timeout = HOLD_SECONDS if self.held else None
        try:
            return await asyncio.wait_for(self.queue.get(), timeout)
        except asyncio.TimeoutError:
            held, self.held = self.held, b""
            self.mode.link.let_go += 1
            await self.send(self.conn.ends[self.direction], held)
            return await self.queue.get()

    async def gate(self):
        """Stands still as long as there is a blackhole."""
        while self.mode.name == "blackhole":
            self.mode.fire()
            await self.until_changed()

    async def forward(self, dst, data):
        self.held = b""
        mode = self.mode
        cut = False
        if mode.cuts():
            data, self.held, cut = mode.split(self, data)
        if mode.name == "trickle":
            await self.trickle(dst, data, mode)
        elif data:
            await self.send(dst, data)
        if cut:
            mode.fire()
            await delivered(dst)
            self.conn.finish()
            raise Ended

    async def trickle(self, dst, data, mode):
        """Bytes one by one, as long as the mode is on."""
        at, size = 0, mode.args["size"]
        while at < len(data) and mode is self.mode:
            await self.send(dst, data[at:at + size])
            at += size
            mode.fire()
            if mode.args["pause"]:
                await self.until_changed(mode.args["pause"])
            else:
                await asyncio.sleep(0)
        if at < len(data):
            await self.gate()
            await self.forward(dst, data[at:])

    async def send(self, dst, data):
        if self.broken:
            return
        try:
            await asyncio.get_running_loop().sock_sendall(dst, data)
        except OSError:
            self.broken = True
            if self.other.done:
                self.conn.finish()
            return
        self.passed += len(data)
        self.conn.link.bytes[self.direction] += len(data)

    async def end(self, dst, data):
        """Tells the receiver that the sender has closed."""
        if self.held:
            await self.send(dst, self.held)
        self.done = True
        if data is RESET or self.other.broken or self.other.done:
            if data is RESET:
                await delivered(dst)
            self.conn.finish(reset=data is RESET or self.other.broken)
        else:
            with contextlib.suppress(OSError):
                dst.shutdown(socket.SHUT_WR)


class Connection:
    def __init__(self, link, client):
        self.link = link
        self.client = client
        self.server = None
        self.over = asyncio.get_running_loop().create_future()
        self.pipes = {way: Pipe(self, way, link.modes[way])
                      for way in (UP, DOWN)}
        self.pipes[UP].other = self.pipes[DOWN]
        self.pipes[DOWN].other = self.pipes[UP]
        self.ends = {}
        self.tasks = []
        self.gone = False       # half_open: there is no server any more

    def finish(self, reset=True):
        if not self.over.done():
            self.over.set_result(reset)

    async def run(self):
        connecting = asyncio.create_task(self.connect())
        self.tasks.append(connecting)
        reset = await self.over
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for sock in filter(None, (self.client, self.server)):
            if reset:
                close_reset(sock)
            else:
                sock.close()
        self.link.connections.discard(self)

    def spawn(self, work):
        async def guarded():
            try:
                await work
            except Ended:
                pass
            except Exception:
                self.link.errors.append(traceback.format_exc())
                self.finish()
        self.tasks.append(asyncio.create_task(guarded()))

    async def connect(self):
        """Accepted by us; a blackhole lets it get no further."""
        no_delay(self.client)
        self.spawn(self.pipes[UP].read(self.client))
        for pipe in self.pipes.values():
            await pipe.gate()
        family, where = parse(self.link.target)
        self.server = new_socket(family)
        try:
            await asyncio.get_running_loop().sock_connect(self.server, where)
        except OSError as error:
            print(f"{self.link.target}: {error}", flush=True)
            self.finish()
            return
        no_delay(self.server)
        self.ends = {UP: self.server, DOWN: self.client}
        self.spawn(self.pipes[UP].write(self.server))
        self.spawn(self.pipes[DOWN].read(self.server))
        self.spawn(self.pipes[DOWN].write(self.client))

    async def reset(self, mode):
        """When one side's last words are unread, it hears of a reset even on
        a unix socket."""
        mode.fire()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await unread(self.client)
        self.finish()

    async def lose_server(self, mode):
        """The server is gone without a word; what the client sends stays in
        its kernel. Back on the air, its next packet would be answered by a
        reset."""
        mode.fire()
        self.gone = True
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self.server:
            self.server.close()
            self.server = None

    def set_mode(self, way, mode):
        self.pipes[way].set_mode(mode)
        if self.gone and mode.name != "half_open":
            self.finish()

    def enter(self, mode):
        """What a mode does to a connection besides what it does to bytes."""
        if mode.name in ("reset", "refuse"):
            self.link.spawn(self.reset(mode))
        elif mode.name == "half_open" and not self.gone:
            self.link.spawn(self.lose_server(mode))


class Link:
    def __init__(self, listen, target, seed):
        self.listen = listen
        self.target = target
        self.random = random.Random(seed)
        self.connections = set()
        self.accepted = 0
        self.fired = 0
        self.let_go = 0
        self.bytes = {UP: 0, DOWN: 0}
        self.modes = {}
        self.tasks = set()
        self.errors = []        # of the proxy itself
        self.flapping = None
        self.listener = None
        self.set_modes("pass", (UP, DOWN), "all", {})

    def spawn(self, work):
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def open(self):
        """Listens, at the address that it had before."""
        family, where = parse(self.listen)
        if self.listener is None:
            self.listener = new_socket(family)
            if family == socket.AF_UNIX:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(where)
            else:
                self.listener.setsockopt(socket.SOL_SOCKET,
                                         socket.SO_REUSEADDR, 1)
            self.listener.bind(where)
            if family == socket.AF_UNIX:
                os.chmod(where, 0o777)
        self.listener.listen(512)
        asyncio.get_running_loop().add_reader(self.listener, self.accept)

    def shut(self):
        """Connects are refused. A TCP port stays ours meanwhile: it is bound,
        but nobody listens."""
        asyncio.get_running_loop().remove_reader(self.listener)
        if self.listener.family == socket.AF_UNIX:
            self.listener.close()
            self.listener = None
        else:
            self.listener.shutdown(socket.SHUT_RDWR)

    def accept(self):
        with contextlib.suppress(BlockingIOError, ConnectionError):
            client, _ = self.listener.accept()
            client.setblocking(False)
            self.accepted += 1
            connection = Connection(self, client)
            self.connections.add(connection)
            self.spawn(connection.run())
            connection.enter(self.modes[UP])

    def set_modes(self, name, ways, which, args, total=None):
        """The mode of one or both directions, of connections that are there
        (old), will be (new), or both (all)."""
        if name in WHOLE:
            ways = (UP, DOWN)
        if which != "old":
            was = UP in self.modes and self.modes[UP].name == "refuse"
            if was and name != "refuse":
                self.open()
            elif name == "refuse" and not was:
                self.shut()
        mode = Mode(self, name, args, total)
        for way in ways:
            if which != "old":
                self.modes[way] = mode
            if which != "new":
                for connection in list(self.connections):
                    connection.set_mode(way, mode)
        if which != "new":
            for connection in list(self.connections):
                connection.enter(mode)
        self.current = total or mode

    async def flap(self, ways, args):
        """Pass and the bad mode, in turns; `current` counts over them all."""
        total = Mode(self, "flap", args)
        while True:
            for name in (args["bad"], "pass"):
                self.set_modes(name, ways, "all", {}, total)
                await asyncio.sleep(
                    args["period"] * self.random.uniform(0.5, 1.5))

    # ---- what the control socket asks for ----

    def do_mode(self, name, direction, which, args):
        fired = self.current.fired
        if self.flapping:
            self.flapping.cancel()
            self.flapping = None
        if self.modes[UP].name in WHOLE:    # else it stays in one direction
            self.set_modes("pass", (UP, DOWN), "all", {})
        ways = (UP, DOWN) if direction == "both" else (direction,)
        if name == "flap":
            self.flapping = self.spawn(self.flap(ways, args))
        else:
            self.set_modes(name, ways, which, args)
        return fired

    def do_target(self, address, old):
        self.target = address
        if old == "reset":
            for connection in list(self.connections):
                connection.finish()

    def do_stats(self):
        return {"connections": self.accepted, "open": len(self.connections),
                **self.bytes, "fired": self.current.fired,
                "fired_ever": self.fired, "let_go": self.let_go}


async def main():
    control, listen, target, seed = sys.argv[1:]
    sock = socket.socket(fileno=int(control))
    reader, writer = await asyncio.open_connection(sock=sock)
    link = Link(listen, target, int(seed))
    link.open()
    writer.write(b"{}\n")
    while line := await reader.readline():
        op, args = json.loads(line)
        answer = {"answer": getattr(link, f"do_{op}")(**args),
                  "errors": link.errors}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()


asyncio.run(main())
