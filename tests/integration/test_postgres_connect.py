# SPDX-License-Identifier: MIT
"""How the daemon finds PostgreSQL: conninfo with TLS, with several hosts, and
with target_session_attrs. A connection that is not to be had has one clear
line in the log, and likes are taken meanwhile."""
import contextlib
import re
import shutil
import socket

import pytest

import harness
from certificates import Authority
from load import assuming, durable
from servers import (SUPERUSER, Database, Postgres, pg_bin, run,
                     unprivileged_user, wait_for, wrapped)
from test_backends import HASTY, SMALL

TRUST = "local all all trust\nhost all all 127.0.0.1/32 trust\n"
CLIENT_CERT = ("local all all trust\n"
               "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n")


def logged(daemon, text):
    wait_for(lambda: re.search(text, daemon.log_text()),
             what=f"{text!r} in the log")


def works(daemon, pg):
    """A like gets into its tables."""
    wait_for(daemon.ready, what="PostgreSQL to be reached")
    with daemon.client() as client:
        client.execute_command("UNLIKE", 1, 1)
        client.execute_command("LIKE", 1, 1)
    daemon.drain()
    assert pg.value("SELECT status FROM user_like_post WHERE user_id = 1") == 1


def refused(daemon, text):
    logged(daemon, f"warn +pg: (cannot connect|refused): [^\n]*{text}")
    assert daemon.metrics()["likesyncd_postgres_up"] == 0
    with daemon.client() as client:
        assert client.execute_command("LIKE", 7, 42) == 1


# ---- TLS ----

class TlsServer:
    """Listens on 127.0.0.1 with a certificate for these names."""

    def __init__(self, bed, names=("localhost", "127.0.0.1"), hba=TRUST):
        self.dir = bed.make_dir("tls")
        self.authority = Authority(self.dir)
        self.other = Authority(self.dir, "other")
        self.cert, self.key = self.authority.issue(*names)
        self.hba = self.dir / "pg_hba.conf"
        self.hba.write_text(hba)
        self.key.chmod(0o600)
        if unprivileged_user():
            shutil.chown(self.key, unprivileged_user())
        self.cluster = bed.postgres(
            listen_addresses="127.0.0.1", port=harness.free_port(), ssl="on",
            ssl_cert_file=self.cert, ssl_key_file=self.key,
            ssl_ca_file=self.authority.file, hba_file=self.hba)
        self.pg = self.cluster.create_database()

    def conninfo(self, host="localhost", **options):
        options = {"sslrootcert": self.authority.file, **options}
        return (f"host={host} port={self.cluster.port} dbname={self.pg.name}"
                " user=likesyncd gssencmode=disable "
                + " ".join(f"{name}={value}"
                           for name, value in options.items()))


def is_encrypted(pg):
    return pg.query("SELECT DISTINCT ssl FROM pg_stat_ssl JOIN"
                    " pg_stat_activity USING (pid) WHERE usename ="
                    " 'likesyncd' AND datname = %s", pg.name) == [(True,)]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_verify_full(bed, redis, host):
    server = TlsServer(bed)
    daemon = bed.daemon(redis, server.pg, postgres_conninfo=server.conninfo(
        host, sslmode="verify-full"), **SMALL)
    works(daemon, server.pg)
    assert is_encrypted(server.pg)
    with harness.I1Watcher(server.pg), \
            assuming(redis, daemon, seed=71) as load:
        for _ in range(2):
            load.wait_acked(100)
            server.cluster.restart("immediate")
        wait_for(daemon.ready, what="PostgreSQL to be reached again")
        load.wait_acked(100)
    assert is_encrypted(server.pg)


def test_refused_by_tls(bed, redis):
    """Nobody but the right server gets the password and the likes."""
    server = TlsServer(bed, names=("db.example.com",))
    wrong_ca = {"sslmode": "verify-full", "sslrootcert": server.other.file}
    nowhere = {"sslmode": "verify-ca", "sslrootcert": server.dir / "nowhere"}
    daemon = bed.daemon(redis, server.pg, wait="answers",
                        postgres_conninfo=server.conninfo(**wrong_ca))
    refused(daemon, "certificate verify failed")
    for options, text in (
            ({"sslmode": "verify-full"},
             '"db.example.com" does not match host name "localhost"'),
            (nowhere, 'root certificate file "[^"]*/nowhere" does not exist')):
        daemon.kill9()
        daemon.write_config(postgres_conninfo=server.conninfo(**options))
        daemon.start(wait="answers")
        wait_for(lambda: re.search(text, daemon.log_text()), what=text)
        assert server.pg.backends() == []
    daemon.kill9()
    # Of the right CA, whatever the name: what verify-ca asks for.
    daemon.write_config(postgres_conninfo=server.conninfo(sslmode="verify-ca"))
    daemon.start()
    works(daemon, server.pg)
    assert is_encrypted(server.pg)
    assert server.pg.value("SELECT count(*) FROM user_like_post") == 2


def test_tls_is_required_of_a_server_without(bed, redis):
    cluster = bed.postgres(listen_addresses="127.0.0.1",
                           port=harness.free_port())
    pg = cluster.create_database()
    conninfo = (f"host=127.0.0.1 port={cluster.port} dbname={pg.name}"
                " user=likesyncd sslmode=")
    daemon = bed.daemon(redis, pg, wait="answers",
                        postgres_conninfo=conninfo + "require")
    refused(daemon, "server does not support SSL, but SSL was required")
    daemon.kill9()
    daemon.write_config(postgres_conninfo=conninfo + "prefer")
    daemon.start()
    works(daemon, pg)


def test_client_certificate(bed, redis):
    server = TlsServer(bed, hba=CLIENT_CERT)
    daemon = bed.daemon(redis, server.pg, wait="answers",
                        postgres_conninfo=server.conninfo(
                            sslmode="verify-full", sslcert="/nowhere"))
    refused(daemon, "connection requires a valid client certificate")
    daemon.kill9()
    cert, key = server.authority.issue("likesyncd")
    key.chmod(0o600)
    daemon.write_config(postgres_conninfo=server.conninfo(
        sslmode="verify-full", sslcert=cert, sslkey=key))
    daemon.start()
    works(daemon, server.pg)


# ---- several hosts ----

@contextlib.contextmanager
def silent_port():
    """Takes connections and says nothing, like a server that hangs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


@pytest.mark.parametrize("hosts", [
    "host=127.0.0.1,localhost", "hostaddr=127.0.0.1,127.0.0.1",
    "host=one,two hostaddr=127.0.0.1,127.0.0.1"])
def test_a_silent_host_does_not_hide_the_next(bed, redis, hosts):
    cluster = bed.postgres(listen_addresses="127.0.0.1",
                           port=harness.free_port())
    pg = cluster.create_database()
    with silent_port() as silent:
        daemon = bed.daemon(redis, pg, **{**SMALL, **HASTY}, postgres_conninfo=(
            f"{hosts} port={silent},{cluster.port} dbname={pg.name}"
            " user=likesyncd"))
        works(daemon, pg)
        cluster.restart("immediate")
        works(daemon, pg)
    assert "no answer within 400 ms" in daemon.log_text()


def test_hosts_that_are_not_there(bed, redis, pg):
    """One does not resolve, one does not listen, one has no such socket."""
    daemon = bed.daemon(redis, pg, postgres_conninfo=(
        f"host=no-such-host.invalid,127.0.0.1,/nowhere,{pg.cluster.dir}"
        f" port={pg.cluster.port},{harness.free_port()},{pg.cluster.port},"
        f"{pg.cluster.port} dbname={pg.name} user=likesyncd"))
    works(daemon, pg)


def standby_of(bed, primary):
    """A hot standby that follows it."""
    backup = bed.make_dir("backup")
    user = unprivileged_user()
    if user:
        shutil.chown(backup, user)
    run(wrapped([pg_bin("pg_basebackup"), "-h", primary.dir, "-p",
                 primary.port, "-U", SUPERUSER, "-D", backup / "data", "-R",
                 "-X", "stream", "-c", "fast"], user), cwd=backup)
    return Postgres(bed, backup / "data")


def test_failover_to_a_standby(bed, redis):
    """The standby stands first in the list, and is passed over until it is
    promoted. Each commit waits for it, so that nothing is lost with the
    primary."""
    primary = bed.postgres()
    old = primary.create_database()
    standby = standby_of(bed, primary)
    new = Database(standby, old.name)
    old.query("ALTER SYSTEM SET synchronous_standby_names = '*'")
    old.query("SELECT pg_reload_conf()")
    wait_for(lambda: old.query("SELECT 1 FROM pg_stat_replication"
                               " WHERE sync_state = 'sync'"),
             what="the standby to follow")
    daemon = bed.daemon(redis, old, **SMALL, postgres_conninfo=(
        f"host={standby.dir},{primary.dir} dbname={old.name} user=likesyncd"
        " target_session_attrs=read-write"))
    with harness.I1Watcher(new), assuming(redis, daemon, seed=72) as load:
        load.wait_acked(300)
        assert old.backends() and not new.backends()
        primary.stop("immediate")
        load.wait_acked(100)
        assert new.value("SELECT pg_promote()")
        wait_for(daemon.ready, what="the new primary to be reached")
        load.wait_acked(300)
    assert not load.refusals()
    durable(daemon, load, redis, new)
    assert new.backends()


def test_only_a_standby(bed, redis):
    """Without target_session_attrs it is seen by the daemon itself."""
    primary = bed.postgres()
    pg = primary.create_database()
    standby = standby_of(bed, primary)
    conninfo = f"host={standby.dir} dbname={pg.name} user=likesyncd"
    attrs = f"{conninfo} target_session_attrs=read-write"
    plain, picky = [bed.daemon(redis, pg, wait="answers", postgres_conninfo=c)
                    for c in (conninfo, attrs)]
    refused(plain, "it is a standby: waiting for a primary")
    logged(picky, "pg: cannot connect: [^\n]*session is read-only")
    primary.stop()
    assert Database(standby, pg.name).value("SELECT pg_promote()")
    for daemon in (plain, picky):
        works(daemon, Database(standby, pg.name))


def test_a_read_only_server_is_passed_over(bed, redis, pg):
    read_only = bed.postgres(default_transaction_read_only="on")
    daemon = bed.daemon(redis, pg, postgres_conninfo=(
        f"host={read_only.dir},{pg.cluster.dir} user=likesyncd"
        f" dbname={pg.name} target_session_attrs=read-write"))
    works(daemon, pg)
