# SPDX-License-Identifier: MIT
"""How much longer 99 of 100 requests of a client take when others attack: LIKE
and PING, each on a connection of its own, with and without.

The attackers run with the lowest priority: on a machine of their own, which
they would have, they would take no processor time from anybody here."""
import contextlib
import subprocess
import sys
import time

import attacks
import harness
from bench_stage import ID_BASE, probe

VERBS = "LIKE", "PING"
SEED = 1
FIGURES = tuple(
    (f"hostile_{name}_{verb}", f"{name.replace('_', ' ')}: {verb}, 99 of 100",
     "times", 2) for name in attacks.ATTACKS for verb in VERBS)
AIMS = {key: 2 for key, *_ in FIGURES}


@contextlib.contextmanager
def under_attack(name, daemon):
    """Until the attack is in full swing, and then all the while."""
    program = harness.ROOT / "tests" / "integration" / "attacks.py"
    attacker = subprocess.Popen(
        ["nice", "-n", "19", sys.executable, program, name,
         str(daemon.socket), str(daemon.port), str(SEED)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        if attacker.stdout.readline() != b"under way\n":
            raise harness.Failed(f"the attack {name} did not get under way")
        yield
        if attacker.poll() is not None:
            raise harness.Failed(f"the attack {name} ended by itself")
    finally:
        attacker.terminate()
        attacker.communicate(timeout=60)


def p99_ms(bench, daemon, first):
    """{verb: ms}, and how many likes were made."""
    took = {}
    with contextlib.ExitStack() as stack:
        for verb in VERBS:
            took[verb] = stack.enter_context(
                probe(daemon, verb, first=first, others=1000))
        time.sleep(bench.options.seconds)
    likes = int(took["LIKE"]["events"])
    if took["LIKE"]["ones"] != likes:
        raise harness.Failed("a reply to LIKE was not 1")
    return {verb: took[verb]["p99_ms"] for verb in VERBS}, likes


def beside(bench, name):
    options = attacks.ATTACKS[name].options
    with bench.stage(tcp=True, **options) as stage:
        # What is started first is slower.
        _, warm = p99_ms(bench, stage.daemon, 0)
        calm, before = p99_ms(bench, stage.daemon, warm)
        with under_attack(name, stage.daemon):
            rough, during = p99_ms(bench, stage.daemon, warm + before)
        for verb in VERBS:
            bench.note(f"hostile_{name}_{verb}", rough[verb] / calm[verb])
            bench.detail(f"beside {name}.{verb} calm_ms", calm[verb])
            bench.detail(f"beside {name}.{verb}_ms", rough[verb])
        stage.daemon.drain(timeout=900)
        harness.check_exact(stage.pg)
        rows = stage.pg.value("SELECT count(*) FROM user_like_post"
                              " WHERE user_id >= %s", ID_BASE)
        if rows != warm + before + during:
            raise harness.Failed(f"{rows} rows of {warm + before + during} "
                                 "likes")


def steps(bench):
    return tuple((f"others beside an attack: {name.replace('_', ' ')}",
                  lambda name=name: beside(bench, name))
                 for name in attacks.ATTACKS)
