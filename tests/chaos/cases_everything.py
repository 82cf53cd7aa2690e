# SPDX-License-Identifier: MIT
"""Everything at once: the daemons, Redis and PostgreSQL are killed, stopped and
started in any order. What is away comes back in one of the next rounds."""
import contextlib

import psycopg2
import redis as redis_py

from case import case
from judge import NONE
from record import REFUSED

OPTIMISTIC = {"like_lookup": "optimistic", "follow_lookup": "optimistic"}


class Game:
    """What may happen, and to whom; who is away."""

    def __init__(self, run):
        self.run, self.random = run, run.random
        self.away = {}          # name: repair

    def moves(self):
        yield "scripts", self.flush_scripts
        yield "backends", self.end_backends
        yield "redis", self.kill_redis
        yield "redis", self.pause_redis
        yield "postgres", self.stop_postgres
        for daemon in self.run.daemons:
            yield daemon.dir.name, self.kill, daemon
            yield daemon.dir.name, self.pause, daemon

    def play(self):
        """One move, or one repair."""
        if self.away and self.random.random() < 0.5:
            self.repair(self.random.choice(sorted(self.away)))
            return
        name, move, *whom = self.random.choice(
            [m for m in self.moves() if m[0] not in self.away])
        self.run.fault(f"{name}: {move.__name__}")
        repair = move(*whom)
        if repair:
            self.away[name] = repair

    def repair(self, name):
        self.run.note(f"{name}: back")
        self.away.pop(name)()
        if not self.away:
            self.run.mended()

    def end(self):
        for name in sorted(self.away):
            self.repair(name)

    def flush_scripts(self):
        if "redis" not in self.away:
            with contextlib.suppress(redis_py.RedisError):
                self.run.redis.client().script_flush()

    def end_backends(self):
        if "postgres" not in self.away:
            with contextlib.suppress(psycopg2.OperationalError):
                for pid in self.run.pg.backends():
                    self.run.pg.value("SELECT pg_terminate_backend(%s)", pid)

    def kill_redis(self):
        self.run.redis.kill9()
        return self.run.redis.start

    def pause_redis(self):
        self.run.redis.pause()
        return self.run.redis.resume

    def stop_postgres(self):
        self.run.cluster.stop(self.random.choice(["fast", "immediate"]))
        return self.run.cluster.start

    def kill(self, daemon):
        daemon.kill9()
        return lambda: daemon.start(wait=None)

    def pause(self, daemon):
        daemon.pause()
        return daemon.resume


class PooledGame(Game):
    """The pooler is one more thing that may break."""

    def moves(self):
        yield from super().moves()
        yield "pool", self.kill_pool
        yield "pool", self.pause_pool

    def kill_pool(self):
        self.run.pool.kill9()
        return self.run.pool.start

    def pause_pool(self):
        self.run.pool.pause()
        return self.run.pool.resume


def play(run, game=Game):
    game = game(run)
    try:
        for _ in range(run.rounds(40)):
            game.play()
            if not game.away:
                run.load.wait_acked(run.random.randint(1, 100))
            run.wait(0, 0.3)
            run.load.check()
    finally:
        game.end()


@case("everything", "everything at once", daemons=2, answers=NONE, mostly=(REFUSED,))
def everything(run):
    play(run)


@case("everything_optimistic", "the same with lookups that assume", daemons=2,
      daemon=OPTIMISTIC, answers=NONE, mostly=(REFUSED,))
def everything_optimistic(run):
    play(run)


@case("everything_pooler", "the same behind a pooler", daemons=2, pooler=True,
      answers=NONE, mostly=(REFUSED,))
def everything_pooler(run):
    play(run, PooledGame)
