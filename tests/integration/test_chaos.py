# SPDX-License-Identifier: MIT
"""Everything at once: two daemons, Redis and PostgreSQL are killed, stopped
and started in any order, under load.

LIKESYNCD_CHAOS=SEED:ROUNDS plays another game, or a longer one."""
import contextlib
import os
import random
import time

import pytest

import harness
from load import assuming, durable
from servers import wait_for
from test_two_daemons import SMALL

GAMES = [os.environ["LIKESYNCD_CHAOS"]] if "LIKESYNCD_CHAOS" in os.environ \
    else ["1:25", "2:25", "3:25"]
HASTY = {"postgres_connect_timeout_ms": 400, "postgres_lookup_timeout_ms": 200,
         "postgres_write_timeout_ms": 500, "redis_connect_timeout_ms": 400,
         "redis_timeout_ms": 400}


class Game:
    """The servers, and what may happen to them. What is away comes back in
    one of the next rounds, in any order."""

    def __init__(self, bed, lookup, seed):
        self.random = random.Random(seed)
        self.redis = bed.redis(appendfsync="always")
        self.cluster = bed.postgres()
        self.pg = self.cluster.create_database()
        self.pg.query("ALTER ROLE likesyncd SET"
                      " idle_in_transaction_session_timeout = '300ms'")
        self.daemons = [bed.daemon(self.redis, self.pg, like_lookup=lookup,
                                   **SMALL, **HASTY) for _ in range(2)]
        self.repairs = []
        self.away = set()

    def moves(self):
        yield "scripts", self.flush_scripts
        yield "backends", self.end_backends
        yield "redis", self.kill_redis
        yield "redis", self.pause_redis
        yield "postgres", self.stop_postgres
        for daemon in self.daemons:
            yield daemon.dir.name, self.kill, daemon
            yield daemon.dir.name, self.pause, daemon

    def play(self):
        """One move, or one repair."""
        if self.repairs and self.random.random() < 0.5:
            self.repair(self.random.randrange(len(self.repairs)))
            return
        name, move, *whom = self.random.choice(
            [m for m in self.moves() if m[0] not in self.away])
        repair = move(*whom)
        print(f"{time.strftime('%T')} {name}: {move.__name__}")
        if repair:
            self.away.add(name)
            self.repairs.append((name, repair))

    def repair(self, n):
        name, action = self.repairs.pop(n)
        print(f"{time.strftime('%T')} {name}: back")
        action()
        self.away.remove(name)

    def repair_all(self):
        while self.repairs:
            self.repair(0)
        for daemon in self.daemons:
            daemon.wait_up(daemon.ready)

    def flush_scripts(self):
        if "redis" not in self.away:
            self.redis.client().script_flush()

    def end_backends(self):
        if "postgres" not in self.away:
            for pid in self.pg.backends():
                self.pg.value("SELECT pg_terminate_backend(%s)", pid)

    def kill_redis(self):
        self.redis.kill9()
        return self.redis.start

    def pause_redis(self):
        self.redis.pause()
        return self.redis.resume

    def stop_postgres(self):
        self.cluster.stop(self.random.choice(["fast", "immediate"]))
        return self.cluster.start

    def kill(self, daemon):
        daemon.kill9()
        return lambda: daemon.start(wait=None)

    def pause(self, daemon):
        daemon.pause()
        return daemon.resume


def play(game, seed, rounds):
    """All of a game, under load; then nothing is lost, and it answers."""
    with harness.I1Watcher(game.pg), \
            assuming(game.redis, *game.daemons, seed=seed) as load:
        for _ in range(rounds):
            game.play()
            if not game.away:
                load.wait_acked(game.random.randint(1, 100))
            time.sleep(game.random.uniform(0, 0.3))   # for what happens next
            load.check_clients()
        game.repair_all()
        load.wait_acked(200)
    durable(game.daemons[0], load, game.redis, game.pg)
    with contextlib.closing(game.daemons[1].client()) as client:
        (user, post), _ = next(iter(load.may_be().items()))
        wait_for(lambda: client.execute_command("LIKED", user, post) == [
            game.pg.value("SELECT count(*) FROM user_like_post WHERE user_id ="
                          " %s AND post_id = %s AND status = 1", user, post)],
                 what="a right answer")


@pytest.mark.parametrize("lookup", ["strict", "optimistic"])
@pytest.mark.parametrize("game", GAMES)
def test_chaos(bed, lookup, game):
    seed, rounds = map(int, game.split(":"))
    play(Game(bed, lookup, seed), seed, rounds)
