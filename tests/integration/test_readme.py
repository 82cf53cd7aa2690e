# SPDX-License-Identifier: MIT
"""README.md says nothing that does not work: its code is compiled and run, its
queries are run, its recipe is followed, its tables are complete."""
import json
import re

import harness
from servers import ROOT, run, run_status

README = (ROOT / "README.md").read_text()
SOCKET = "/run/likesyncd/likesyncd.sock"


def blocks(language):
    """The code of all blocks in a language ("" has none)."""
    return [code for name, code in
            re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)
            if name == language]


def section(title):
    return re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", README,
                     re.M | re.S)[1]


def rows(title):
    """The cells of the tables in a section, without their heads."""
    lines = [line for line in section(title).splitlines()
             if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
             for line in lines]
    heads = {i - 1 for i, row in enumerate(cells) if set(row[0]) <= {"-"}}
    return [row for i, row in enumerate(cells)
            if i not in heads and i - 1 not in heads]


def test_python(daemon, pg, tmp_path):
    code, = blocks("python")
    assert SOCKET in code
    file = tmp_path / "app.py"
    file.write_text(code.replace(SOCKET, str(daemon.socket)) +
                    "\nprint(changed, total, liked)\n")
    code, output = run_status(["/usr/bin/python3", file])
    lines = output.splitlines()
    assert code == 0 and len(lines) == 2, output
    assert re.fullmatch(r"7 \d{10}(\.\d+)? -", lines[0])
    assert lines[1] == "1 1 [1, 0]"
    daemon.drain()
    assert pg.query("SELECT user_id, post_id, status FROM user_like_post"
                    " ORDER BY post_id") == [(7, 42, 0), (7, 43, 1),
                                             (7, 44, 1)]
    assert pg.query("SELECT user_id, followee_id, status FROM user_follow") \
        == [(7, 8, 1)]


def test_python_says_what_is_wrong(bed, redis, pg, tmp_path):
    """The promised error, while a backend is away."""
    code, = blocks("python")
    daemon = bed.daemon(redis, pg)
    redis.stop()
    last = code[code.index("try:"):]
    file = tmp_path / "app.py"
    file.write_text(code[:code.index("changed,")]
                    .replace(SOCKET, str(daemon.socket)) + last)
    code, output = run_status(["/usr/bin/python3", file])
    assert code == 0 and output.startswith("UNAVAILABLE not recorded: ")


def test_c(daemon, tmp_path):
    code, = blocks("c")
    (tmp_path / "app.c").write_text(code.replace(SOCKET, str(daemon.socket)))
    flags = run(["pkg-config", "--cflags", "--libs", "hiredis"]).split()
    # The README includes <hiredis/hiredis.h>, as people do.
    run(["cc", "-Wall", "-Wextra", "-Werror", "-o", tmp_path / "app",
         tmp_path / "app.c", *flags])
    for changed in (1, 0):
        status, output = run_status([tmp_path / "app"])
        assert status == 0 and re.fullmatch(
            rf"changed {changed}, total 1\n7 since \d+(\.\d+)?, relation 0\n",
            output), output


def queries():
    return [q.strip() for block in blocks("sql")
            for q in re.split(r";\s*(?:\n|$)", block) if q.strip()]


def test_queries(daemon, client, redis, pg):
    assert len(queries()) == 13
    pg.psql("-f", ROOT / "sql" / "views.sql")
    pg.query("ALTER TABLE user_like_post ADD CHECK (user_id <> 666)")
    for user in (7, 8, 666):
        client.execute_command("LIKE", user, 42, "AT", 1289192400 + user)
    for user, other, at in ((7, 8, 10), (7, 9, 20), (6, 8, 30)):
        client.execute_command("FOLLOW", user, other, "AT", 1289192400 + at)
    redis.client().sadd("post_set", 43)
    redis.client().incrby("post_43_counter", 5)
    daemon.drain()
    found = {}
    retry = queries()[-1]
    for query in queries()[:-1]:
        found[re.match(r"-- (.*)\n", query)[1]] = pg.query(query)
    assert found["The most liked posts."] == [(43, 5), (42, 2)]
    assert [user for user, _ in found["Who likes post 42, newest first."]] \
        == [8, 7]
    behind = found["How far the tables are behind."]
    assert {kind for kind, _, _ in behind} == {"like", "follow"}
    assert all(0 <= lag.total_seconds() < 60 for _, _, lag in behind)
    (state, reason, count, _, _), = \
        found["Rows that PostgreSQL refused, and why."]
    assert (state, count) == ("23514", 1) and "check" in reason
    (_, batches, n_rows), = found["What was written, minute by minute."][:1]
    assert batches >= 1 and n_rows >= 2
    assert found["Counts that others added without rows."] == [(43, 5, 5)]
    assert [other for other, _ in found["Whom user 7 follows, newest first."]] \
        == [9, 8]
    assert [user for user, _ in found["The newest followers of user 8."]] \
        == [6, 7]
    assert found["The most followed users."][0] == (8, 2, 0)
    assert found["The exactness check: no row, in any snapshot, also in the "
                 "middle of a flush."] == []
    assert found["The same for follows: users whose counts are not those of "
                 "the rows."] == []
    behind = found["How far behind, and who wrote last."]
    assert {kind for kind, *_ in behind} == {"like", "follow"}
    assert all(who for _, _, who, _ in behind)
    # The dead letter is applied once its cause is gone.
    pg.query("ALTER TABLE user_like_post DROP CONSTRAINT"
             " user_like_post_user_id_check")
    assert [what for _, what in pg.query(retry)] == ["applied: like 42 666"]
    assert pg.value("SELECT like_count FROM post_like WHERE post_id = 42") \
        == 3
    harness.check_exact(pg)


def test_the_exactness_check_finds_what_is_wrong(daemon, client, pg):
    client.execute_command("LIKE", 7, 42)
    daemon.drain()
    check = next(q for q in queries() if "exactness" in q)
    assert pg.query(check) == []
    pg.query("UPDATE post_like SET like_count = 9")
    assert pg.query(check) == [(42, 9, 1)]


def test_the_check_of_follows_finds_what_is_wrong(daemon, client, pg):
    client.execute_command("FOLLOW", 7, 8)
    daemon.drain()
    check = next(q for q in queries() if q.startswith("-- The same for"))
    assert pg.query(check) == []
    pg.query("UPDATE user_follow_count SET follower_count = 9"
             " WHERE user_id = 8")
    assert pg.query(check) == [(8, 0, 8)]


def test_a_dead_follow_can_be_applied(daemon, client, pg):
    pg.psql("-f", ROOT / "sql" / "views.sql")
    pg.query("ALTER TABLE user_follow ADD CHECK (user_id <> 666)")
    client.execute_command("FOLLOW", 666, 8, "AT", 1289192400)
    daemon.drain()
    pg.query("ALTER TABLE user_follow DROP CONSTRAINT"
             " user_follow_user_id_check")
    assert [what for _, what in pg.query(queries()[-1])] == \
        ["applied: follow 666 8"]
    assert pg.query("SELECT user_id, followee_id FROM user_follow") == \
        [(666, 8)]


def test_examples_of_pages(client):
    for user, other, at in ((7, 8, "1750000000"), (31, 8, "1750000300.25"),
                            (9, 31, "1750000001"), (31, 9, "1750000002"),
                            (9, 5, "1750000003"), (31, 5, "1750000004")):
        client.execute_command("FOLLOW", user, other, "AT", at)
    examples, = [b for b in blocks("") if b.startswith("FOLLOWERS")]
    for line in examples.splitlines():
        command, reply = re.fullmatch(r"(.*?) {2,}(.*)", line).groups()
        assert client.execute_command(*command.split()) == \
            json.loads(reply), line


def test_the_index_for_a_users_likes(pg):
    statement = re.search(r"`(CREATE INDEX [^`]*)`", README)[1]
    pg.query(statement)


def test_recipe(daemon, client, redis, pg):
    """On a pair that is clean, so that its hash has a TTL."""
    client.execute_command("LIKE", 7, 42)
    client.execute_command("UNLIKE", 7, 42)
    daemon.drain()
    daemon.admin().execute_command("FLUSHER", "PAUSE")
    recipe = next(b for b in blocks("") if b.startswith("HSET post_"))
    for line in recipe.splitlines():
        # A time that is newer than that of the daemon's own unlike.
        redis.client().execute_command(
            *line.replace("1790000000", "4000000000").split())
    assert redis.client().ttl("post_user_like_42_7") == -1
    daemon.admin().execute_command("FLUSHER", "RESUME")
    daemon.drain()
    assert pg.query("SELECT status FROM user_like_post") == [(1,)]
    assert pg.query("SELECT like_count, unattributed FROM post_like") == \
        [(1, 0)]
    assert client.execute_command("LIKED", 7, 42) == [1]


def test_recipe_of_a_follow(daemon, client, redis, pg):
    client.execute_command("FOLLOW", 7, 8)
    client.execute_command("UNFOLLOW", 7, 8)
    daemon.drain()
    daemon.admin().execute_command("FLUSHER", "PAUSE")
    recipe = next(b for b in blocks("") if b.startswith("HSET user_follow"))
    for line in recipe.splitlines():
        redis.client().execute_command(
            *line.replace("1790000000", "4000000000").split())
    assert redis.client().ttl("user_follow_7_8") == -1
    daemon.admin().execute_command("FLUSHER", "RESUME")
    daemon.drain()
    assert pg.query("SELECT user_id, followee_id, status FROM user_follow") \
        == [(7, 8, 1)]
    assert client.execute_command("FOLLOWCOUNT", 7, 8) == [[1, 0], [0, 1]]
    assert client.execute_command("FOLLOWERS", 8) == ["7"]


def test_text_ids_stand_in_keys_as_it_says(bed, redis, cluster):
    pg = cluster.create_database(
        variables={"user_id_type": "text", "post_id_type": "text"})
    bed.databases.append(pg)
    daemon = bed.daemon(redis, pg, ids_user="text", ids_post="text")
    with daemon.client() as client:
        for user, post in (("a_b", "x"), ("set", "y"), ("\x7f{ %:}\x01", "z"),
                           ("likesync", "z")):
            assert client.execute_command("LIKE", user, post) == 1
    keys = redis.client()
    for key in ("post_user_like_x_a%5Fb", "post_user_like_y_%73et",
                "post_user_like_z_%7F%7B%20%25%3A%7D%01",
                "post_user_like_z_%6Cikesync"):
        assert keys.exists(key), key
    assert keys.hget("post_user_like_x_a%5Fb", "user_id") == "a_b"


def test_install_names_the_packages_that_the_build_needs():
    deps = (ROOT / "tests/lib/deps.sh").read_text()
    packages = re.search(r'^BUILD_PACKAGES="([^"]*)"', deps, re.M)[1].split()
    install = re.search(r"sudo apt install ((?:.*\\\n)*.*)", README)[1]
    assert install.replace("\\\n", " ").split() == packages


def test_options_are_those_that_there_are():
    printed = run([harness.BUILD / "likesyncd", "--print-config", "-c",
                   "/dev/null"])
    known, current = {}, ""
    for line in printed.splitlines():
        if line.startswith("["):
            current = line.strip("[]")
        elif match := re.match(r"(\w+) = ?(.*)$", line):
            known[f"{current}.{match[1]}"] = match[2]
    for names, default, _ in rows("Configuration"):
        for name in re.findall(r"`(\w+\.\w+)`", names):
            assert name in known, name
            if default.strip("`").isalnum():
                assert known[name] == default.strip("`"), name
    for name in re.findall(r"`((?:server|flush|cache|redis|postgres|like|follow"
                           r"|keys)\.\w+)`", README):
        assert name in known, name


def test_metrics_are_those_that_there_are(daemon):
    text = daemon.http("/metrics")[1]
    named = set(re.findall(r"`(likesyncd_[a-z_]+)", README))
    assert len(named) > 8
    for name in named:
        assert re.search(rf"^# TYPE {name} ", text, re.M), name


def test_verbs_and_commands_are_all_there(client):
    help_text = run([harness.BUILD / "likesyncctl", "--help"])
    verbs = set(re.findall(r"^  ([a-z]+(?: [a-z]+)?) ", help_text, re.M))
    verbs = {re.sub(" follows.*", "", verb) for verb in verbs}
    assert verbs == {v for cells in rows("Operate") if len(cells) == 2
                     for v in re.findall(r"`([a-z]+(?: [a-z]+)?)(?: [A-Z]+)?`",
                                         cells[0])}
    named = {name.lower() for cells in rows("Commands")
             for code in re.findall(r"`([A-Z][^`]*)`", cells[0])
             for name in (re.findall(r"\b[A-Z]+\b", code)
                          if code.startswith("PING")
                          else code.split()[:1])}
    known = {c.lower() for c in client.execute_command("COMMAND")}
    assert known <= named, known - named
    assert named - known <= {"get"}


def test_the_runbook_names_each_alert():
    rules = (ROOT / "etc/prometheus-rules.yml").read_text()
    assert set(re.findall(r"alert: (\w+)", rules)) \
        == set(re.findall(r"`(Likesyncd\w+)`", section("Runbook")))


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if target.startswith("#"):
            titles = re.findall(r"^#+ (.*)$", README, re.M)
            anchors = {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-")
                       for t in titles}
            assert target[1:] in anchors, target
        elif "://" not in target:
            assert (ROOT / target).exists(), target


def test_source_layout_is_that_of_the_tree():
    for path, _ in rows("Source layout"):
        for name in re.findall(r"`([^`]+)`", path):
            assert (ROOT / name).is_dir(), name


def test_the_socket_is_the_default_one():
    printed = run([harness.BUILD / "likesyncd", "--print-config", "-c",
                   "/dev/null"])
    assert f"unix:{SOCKET} " in printed
