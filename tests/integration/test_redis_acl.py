# SPDX-License-Identifier: MIT
"""The user of Redis as whom the daemon logs in: its password, what it may do,
and the database."""
import contextlib
import re

import pytest
import redis as redis_py

import harness
from servers import ROOT, wait_for

USER = "likes"


@pytest.fixture
def login(tmp_path):
    """Options of a daemon that logs in as USER."""
    password = tmp_path / "password"
    password.write_text("pw\n")
    password.chmod(0o600)
    return {"redis_username": USER, "redis_password_file": password}


def allow(redis, *rules):
    """USER may do this; returns a connection of somebody who may do all."""
    keys = redis.client()
    keys.execute_command("ACL", "SETUSER", USER, "reset", "on", ">pw", *rules)
    return keys


def documented_rules():
    """Those of the README."""
    text = (ROOT / "README.md").read_text()
    return re.search(r"ACL SETUSER likesyncd on >PASSWORD (.*(?:\n    .*)*)",
                     text)[1].split()


def wait_for_log(daemon, words):
    wait_for(lambda: words in daemon.log_text(), what=words)


def is_away(daemon):
    with contextlib.closing(daemon.client()) as client:
        with pytest.raises(redis_py.ResponseError, match="^UNAVAILABLE"):
            client.execute_command("LIKE", 1, 2)
    assert daemon.metrics()["likesyncd_redis_up"] == 0


def test_every_command_of_the_scripts_is_asked_about():
    scripts = {path.name: path.read_text()
               for path in (ROOT / "daemon" / "lua").glob("*.lua")}
    used = set(re.findall(r"call\('([A-Z]+)'", "".join(scripts.values())))
    used |= set(re.findall(r"'(Z[A-Z]*RANGE)'", scripts["page.lua"]))
    asked = re.search(r"local COMMANDS = (.*?)\n\n", scripts["recover.lua"],
                      re.S)[1]
    assert used == {word.upper() for word in re.findall(r"[a-z]+", asked)}


def test_what_the_readme_allows_is_enough(bed, redis, pg, login):
    keys = allow(redis, *documented_rules())
    daemon = bed.daemon(redis, pg, **login, redis_db=3, like_lists="yes")
    pg.psql("-f", ROOT / "sql" / "likers.sql")
    with daemon.client() as client:
        for user in range(5):
            assert client.execute_command("LIKE", user, 42) == 1
            assert client.execute_command("FOLLOW", user, 9) == 1
        assert client.execute_command("UNLIKE", 0, 42) == 1
        assert client.execute_command("UNFOLLOW", 0, 9) == 1
        daemon.drain()
        keys.flushall()
        assert client.execute_command("LIKECOUNT", 42) == [4]
        assert client.execute_command("LIKED", 1, 42) == [1]
        assert client.execute_command("FOLLOWERS", 9, "RANGE", 0, -1) == \
            ["4", "3", "2", "1"]
        assert client.execute_command("FOLLOWCOUNT", 9) == [[0, 4]]
        assert client.execute_command("RELATION", 9, 1) == [2]
        assert client.execute_command("FOLLOW", 0, 9) == 1
    keys.select(3)
    keys.zadd("70:follow", {"71": 1600000000})
    keys.zadd("71:fans", {"70": 1600000000})
    for command in (["adopt", "follows"], ["verify"], ["verify", "--repair"]):
        status, output = daemon.ctl(*command)
        assert status == 0, output
    daemon.drain()
    assert pg.value("SELECT status FROM user_follow WHERE user_id = 70") == 1
    harness.check_exact(pg)
    assert keys.execute_command("ACL", "LOG") == []


@pytest.mark.parametrize("rules, words", [
    # Redis 7.0 says "this user", 8.0 its name.
    (["-info"], " has no permissions to run the 'info' command"),
    (["-select"], "SELECT: NOPERM "),
    (["-script|load"], "SCRIPT LOAD: NOPERM "),
    (["-evalsha"], " has no permissions to run the 'evalsha' command"),
    # These only scripts use: one that has begun could not be taken back.
    (["-sadd"], "NOPERM this user has no permissions to run the 'sadd' "
                "command on likesync:state:"),
    (["-time"], "NOPERM this user has no permissions to run the 'time' "),
    (["resetkeys", "~likesync:*"],
     "NOPERM this user has no permissions to access the key '"),
    (["resetkeys", "~post_*", "~user_*"],
     "NOPERM this user has no permissions to run the 'del' command on "
     "likesync:state:"),
])
def test_a_user_who_may_not_do_what_is_needed(bed, redis, pg, login, rules,
                                              words):
    """The log says what is missing, nothing is taken, and once it is allowed
    the daemon goes on by itself."""
    keys = allow(redis, "~*", "+@all", *rules)
    daemon = bed.daemon(redis, pg, **login, redis_db=3, wait="answers")
    wait_for_log(daemon, words)
    is_away(daemon)
    keys.select(3)
    assert keys.keys() == []
    keys.execute_command("ACL", "SETUSER", USER, "+@all", "~*")
    daemon.wait_up(daemon.ready)
    with daemon.client() as client:
        assert client.execute_command("LIKE", 1, 2) == 1
    daemon.drain()
    harness.check_exact(pg)


def test_a_wrong_password_and_an_unknown_user(bed, redis, pg, login):
    keys = allow(redis, "~*", "+@all")
    login["redis_password_file"].write_text("other\n")
    daemon = bed.daemon(redis, pg, **login, wait="answers")
    wait_for_log(daemon, "AUTH: WRONGPASS")
    is_away(daemon)
    keys.execute_command("ACL", "SETUSER", USER, ">other")
    daemon.wait_up(daemon.ready)
    keys.execute_command("ACL", "DELUSER", USER)
    wait_for(lambda: daemon.log_text().count("AUTH: WRONGPASS") == 2,
             what="the user to be missed")
    for secret in ("pw", "other"):
        assert not re.search(rf"\b{secret}\b", daemon.log_text())


def test_a_database_that_is_not_there(bed, redis, pg, login):
    allow(redis, "~*", "+@all")
    daemon = bed.daemon(redis, pg, **login, redis_db=16, wait="answers")
    wait_for_log(daemon, "SELECT: ERR DB index is out of range")
    is_away(daemon)
