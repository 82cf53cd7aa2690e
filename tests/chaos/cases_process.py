# SPDX-License-Identifier: MIT
"""Cases of the process: the daemon killed and stopped, at any time and at every
named point."""
from case import case


@case("calm", "nothing happens: what a case has to find nothing in", daemons=2)
def calm(run):
    run.load.wait_acked(1500)


@case("killed", "the daemons are killed at random", daemons=2)
def killed(run):
    for _ in range(run.rounds(12)):
        run.load.wait_acked(run.random.randint(1, 200))
        daemon = run.random.choice(run.daemons)
        run.fault(f"SIGKILL of {daemon.dir.name}")
        daemon.kill9()
        run.wait(0, 0.1)
        daemon.start(wait=None)
