# SPDX-License-Identifier: MIT
"""Cases of PostgreSQL."""
from case import case


@case("pg_killed", "PostgreSQL crashes, for a short time and for a longer one",
      daemons=2)
def pg_killed(run):
    for _ in range(run.rounds(5)):
        run.load.wait_acked(run.random.randint(1, 300))
        run.fault("PostgreSQL crashes", repair=run.cluster.start)
        run.cluster.stop("immediate")
        run.wait(0.1, 0.8)
        run.mend()
