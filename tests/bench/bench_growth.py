# SPDX-License-Identifier: MIT
"""What grows with what: the time of a row with the backlog and with the likes of a
post, the memory of the daemon with the backlog. Only with --long; a line each."""
BACKLOGS = (10_000, 100_000, 1_000_000, 5_000_000)
STEPS_OF_ROW = ("claim", "write", "ack")
FLAT = 1.2


def spent(daemon):
    """Seconds of each step so far."""
    metrics = daemon.metrics()
    return {name: metrics[f'likesyncd_{name}_seconds_sum{{kind="like"}}']
            for name in STEPS_OF_ROW}


def drain(bench, rows, posts, kind):
    with bench.stage() as stage:
        stage.backlog(rows, posts)
        before = spent(stage.daemon)
        took = stage.flush()
        after = spent(stage.daemon)
        stage.check(rows, rows)
        for name in STEPS_OF_ROW:
            bench.grown(kind, name, rows,
                        (after[name] - before[name]) * 1e6 / rows)
        bench.grown(kind, "all", rows, took * 1e6 / rows)
        bench.grown(kind, "memory", rows, stage.daemon.rss_bytes() / 2**20)


def sizes(bench):
    return [n for n in BACKLOGS if n <= bench.options.backlog_max]


def steps(bench):
    """Each post with one like; and one post with all of them."""
    if not bench.options.long:
        return ()
    return tuple(
        (f"a backlog of {rows:,} rows, {what}",
         lambda rows=rows, posts=posts, kind=kind: drain(bench, rows, posts, kind))
        for posts, kind, what in ((0, "posts", "each of another post"),
                                  (1, "likes", "of one post"))
        for rows in sizes(bench))


def show(bench):
    """Of each step, by size, and whether it stays within a fifth."""
    if not bench.growth:
        return
    print("\nmicroseconds of a row, and MiB of the daemon, by rows of the backlog")
    for (kind, name), by_rows in sorted(bench.growth.items()):
        values = [(rows, min(each)) for rows, each in sorted(by_rows.items())]
        text = "  ".join(f"{rows:,}: {value:.1f}" for rows, value in values)
        # The first ones have the start of everything in them.
        settled = [value for rows, value in values if rows >= 100_000]
        flat = "" if len(settled) < 2 else \
            f"  {max(settled) / min(settled):.2f} times" + (
                " flat" if max(settled) <= FLAT * min(settled) else " NOT FLAT")
        print(f"{kind:6} {name:7} {text}{flat}")
