# SPDX-License-Identifier: MIT
"""Redis over TLS. Where hiredis has no TLS, as in Debian 12, it is tested that
nothing of it can be asked for instead."""
import contextlib
import re
import shutil
import socket
import ssl

import pytest
import redis as redis_py

import harness
from certificates import EXPIRED, Authority
from load import assuming, durable
from servers import Redis, run, run_status, wait_for
from test_backends import HASTY, SMALL, Pinger

HAS_TLS = harness.build_has("HIREDIS_SSL_FOUND")
needs_tls = pytest.mark.skipif(
    not HAS_TLS, reason="the hiredis of this system has no TLS")
DAEMON = harness.BUILD / "likesyncd"
NAME = "redis.test"  # of the server, where nothing else is said


class TlsRedis(Redis):
    """A Redis that serves TLS on 127.0.0.1, and its unix socket for the test
    itself."""

    def __init__(self, bed, certificate, authority, host="127.0.0.1",
                 **settings):
        self.port = harness.free_port()
        cert, key = certificate
        super().__init__(bed, tls_port=self.port, tls_cert_file=cert,
                         tls_key_file=key, tls_ca_cert_file=authority.file,
                         bind="127.0.0.1",
                         **{"tls_auth_clients": "no", **settings})
        self.address = f"tls:{host}:{self.port}"

    def restart_with(self, certificate):
        self.settings["tls_cert_file"], self.settings["tls_key_file"] = \
            certificate
        self.restart()


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return tmp_path_factory.mktemp("pki")


@pytest.fixture(scope="module")
def authority(pki):
    return Authority(pki)


@pytest.fixture(scope="module")
def stranger(pki):
    """Another CA, which has nothing to do with the first."""
    return Authority(pki, "stranger")


@pytest.fixture(scope="module")
def certificate(authority):
    return authority.issue(NAME)


@pytest.fixture
def trust(authority):
    """Options of a daemon that trusts this CA, and expects NAME."""
    return {"redis_tls_ca": authority.file, "redis_tls_server_name": NAME}


def like_is_synced(daemon, pg):
    with contextlib.closing(daemon.client()) as client:
        assert client.execute_command("LIKE", 7, 42) == 1
    daemon.drain()
    assert pg.query("SELECT user_id, status FROM user_like_post") == [(7, 1)]
    harness.check_exact(pg)


def check_config(path, **options):
    """(exit status, output) of --check-config with [redis] options."""
    lines = [f"{name} = {value}" for name, value in options.items()]
    path.write_text("\n".join(["[redis]", *lines, ""]))
    return run_status([DAEMON, "--check-config", "-c", path])


# ---- what there is ----

def test_tls_is_built_in_exactly_where_hiredis_has_it():
    status, _ = run_status(["pkg-config", "--exists", "hiredis_ssl"])
    assert HAS_TLS == (status == 0)


def test_a_tls_address_is_refused_or_taken(tmp_path):
    status, output = check_config(tmp_path / "ini", address="tls:r:6380")
    if HAS_TLS:
        assert status == 0, output
    else:
        assert status == 1
        assert ':2: redis.address = "tls:r:6380": expected unix: or tcp:, ' \
            "this build has no TLS support for Redis" in output
        status, output = run_status([DAEMON, "-c", tmp_path / "ini"])
        assert status == 1 and "no TLS support" in output


@pytest.mark.parametrize("option", ["ca", "cert", "key", "server_name"])
def test_options_of_tls_need_a_tls_address(tmp_path, option):
    status, output = check_config(tmp_path / "ini",
                                  **{f"tls_{option}": "something"})
    assert status == 1
    assert f':2: redis.tls_{option} = "something": expected redis.address ' \
        "to be tls:" in output


# ---- files ----

@pytest.fixture(scope="module")
def files(pki, authority, certificate):
    """Good and bad ones by name."""
    cert, key = certificate
    locked, garbage, empty = pki / "locked", pki / "garbage", pki / "empty"
    run(["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", key,
         "-out", locked])
    garbage.write_text("-----BEGIN CERTIFICATE-----\nnothing\n"
                       "-----END CERTIFICATE-----\n")
    empty.write_text("")
    _, other = authority.issue("other")
    return {"ca": authority.file, "cert": cert, "key": key, "other": other,
            "locked": locked, "garbage": garbage, "empty": empty,
            "missing": pki / "missing", "dir": pki}


@needs_tls
@pytest.mark.parametrize("option, file, reason", [
    ("ca", "missing", "No such file or directory"),
    ("ca", "empty", "no certificate or crl found"),
    ("ca", "garbage", "bad base64 decode"),
    ("ca", "key", "no certificate or crl found"),
    ("ca", "dir", "no certificate or crl found"),
    ("cert", "missing", "No such file or directory"),
    ("cert", "empty", "no start line"),
    ("cert", "garbage", "bad base64 decode"),
    ("cert", "key", "no start line"),
    ("key", "missing", "No such file or directory"),
    ("key", "empty", ""),
    ("key", "cert", ""),
    ("key", "other", "key values mismatch"),
    ("key", "locked", "expected a key without a passphrase"),
])
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path, files, option,
                                                    file, reason):
    chosen = {"tls_ca": files["ca"], "tls_cert": files["cert"],
              "tls_key": files["key"]}
    status, output = check_config(tmp_path / "ini", address="tls:r:1",
                                  **chosen)
    assert (status, output) == (0, f"{tmp_path}/ini: good\n")
    chosen[f"tls_{option}"] = files[file]
    status, output = check_config(tmp_path / "ini", address="tls:r:1",
                                  **chosen)
    assert status == 1
    start = f'{tmp_path}/ini: redis.tls_{option} = "{files[file]}": '
    assert output.startswith(start + reason), output
    assert len(output) > len(start) + 5 and output.count("\n") == 1
    status, logged = run_status([DAEMON, "-c", tmp_path / "ini"])
    assert status == 1 and logged.endswith(f"Z error config: {output}")


# ---- it works ----

@needs_tls
@pytest.mark.parametrize("host, name, expected", [
    ("localhost", "localhost", None),
    ("127.0.0.1", "127.0.0.1", None),
    ("127.0.0.1", NAME, NAME),
    ("localhost", "10.1.2.3", "10.1.2.3"),
    ("127.0.0.1", "*.likes.test", "a.likes.test"),
])
def test_the_name_may_be_that_of_the_host_or_be_said(bed, pg, authority, host,
                                                     name, expected):
    redis = TlsRedis(bed, authority.issue(name), authority, host)
    daemon = bed.daemon(redis, pg, redis_tls_ca=authority.file,
                        redis_tls_server_name=expected)
    like_is_synced(daemon, pg)
    assert f"connected to tls:{host}:{redis.port}" in daemon.log_text()


@needs_tls
def test_user_password_and_database(bed, pg, authority, certificate, trust,
                                    tmp_path):
    redis = TlsRedis(bed, certificate, authority)
    keys = redis.client()
    keys.execute_command("ACL", "SETUSER", "likes", "on", ">pw", "~*", "+@all")
    keys.execute_command("ACL", "SETUSER", "default", "-@all", "+ping")
    password = tmp_path / "password"
    password.write_text("pw\n")
    daemon = bed.daemon(redis, pg, **trust, redis_username="likes",
                        redis_password_file=password, redis_db=3)
    like_is_synced(daemon, pg)
    keys.execute_command("AUTH", "likes", "pw")
    assert set(keys.info("keyspace")) == {"db3"}


@needs_tls
def test_redis_restarts_under_load(bed, pg, authority, certificate, trust):
    redis = TlsRedis(bed, certificate, authority, appendfsync="always")
    daemon = bed.daemon(redis, pg, **trust, **SMALL, **HASTY)
    with harness.I1Watcher(pg), assuming(redis, daemon, seed=51) as load, \
            Pinger(daemon) as pinger:
        for end in (redis.stop, redis.kill9) * 2:
            load.wait_acked(200)
            end()
            pinger.wait_more()
            redis.start()
        load.wait_acked(200)
    durable(daemon, load, redis, pg)
    assert daemon.metrics()["likesyncd_redis_reconnects_total"] >= 4


@needs_tls
def test_big_requests_and_replies(bed, pg, authority, certificate, trust):
    """More than one TLS record each way, and than the socket takes at once:
    pages of a list of 20,000 that is loaded from PostgreSQL."""
    redis = TlsRedis(bed, certificate, authority)
    daemon = bed.daemon(redis, pg, **trust)
    client = daemon.client()
    others = list(range(1, 20001))
    for start in range(0, len(others), 2000):
        pipeline = client.pipeline(transaction=False)
        for other in others[start:start + 2000]:
            pipeline.execute_command("FOLLOW", 0, other)
        assert set(pipeline.execute()) == {1}
    daemon.drain()
    redis.client().flushall()
    seen = []
    for start in range(0, len(others), 10000):
        seen += client.execute_command("FOLLOWING", 0, "RANGE", start,
                                       start + 9999)
    assert sorted(map(int, seen)) == others
    harness.check_exact(pg)


# ---- the client's certificate ----

@needs_tls
def test_redis_may_ask_for_a_certificate(bed, pg, authority, certificate,
                                         stranger, trust):
    redis = TlsRedis(bed, certificate, authority, tls_auth_clients="yes")
    cert, key = authority.issue("client")
    like_is_synced(bed.daemon(redis, pg, **trust, redis_tls_cert=cert,
                              redis_tls_key=key), pg)
    without = bed.daemon(redis, pg, **trust, wait="answers")
    wait_for_log(without, "certificate required")
    cert, key = stranger.issue("client")
    unknown = bed.daemon(redis, pg, **trust, redis_tls_cert=cert,
                         redis_tls_key=key, wait="answers")
    wait_for_log(unknown, "unknown ca")
    for daemon in (without, unknown):
        is_away(daemon)


# ---- refused ----

def log_line(pattern):
    return re.compile(r"redis: cannot connect to tls:\S+: .*" + pattern)


def wait_for_log(daemon, pattern):
    line = log_line(pattern)
    wait_for(lambda: line.search(daemon.log_text()), what=pattern)


def is_away(daemon):
    """No Redis, and everything else is as ever."""
    with contextlib.closing(daemon.client()) as client:
        with pytest.raises(redis_py.ResponseError, match="^UNAVAILABLE"):
            client.execute_command("LIKE", 1, 2)
    assert daemon.metrics()["likesyncd_redis_up"] == 0


@needs_tls
@pytest.mark.parametrize("flaw, reason", [
    ("ca", "certificate refused: unable to get local issuer certificate"),
    ("name", f"certificate refused: it is not for {NAME}"),
    ("address", "certificate refused: it is not for 127.0.0.1"),
    ("expired", "certificate refused: certificate has expired"),
])
def test_a_certificate_is_refused(bed, pg, authority, stranger, certificate,
                                  trust, flaw, reason):
    """And once it is mended, the daemon finds that out by itself."""
    good = certificate
    bad = {"ca": stranger.issue(NAME),
           "name": authority.issue("other.test", "test", "127.0.0.1"),
           "address": authority.issue("127.0.0.2", "localhost"),
           "expired": authority.issue(NAME, validity=EXPIRED)}[flaw]
    if flaw == "address":
        trust["redis_tls_server_name"] = None
        good = authority.issue("127.0.0.1")
    redis = TlsRedis(bed, bad, authority)
    daemon = bed.daemon(redis, pg, **trust, wait="answers")
    wait_for_log(daemon, re.escape(reason))
    is_away(daemon)
    # Not a byte of what would be said to Redis was said.
    assert "cmdstat_info" not in redis.client().info("commandstats")
    redis.restart_with(good)
    daemon.wait_up(daemon.ready)
    like_is_synced(daemon, pg)


@needs_tls
def test_without_a_ca_those_of_the_system_are_trusted(
        bed, pg, authority, certificate, trust, monkeypatch):
    redis = TlsRedis(bed, certificate, authority)
    daemon = bed.daemon(redis, pg, **{**trust, "redis_tls_ca": None},
                        wait="answers")
    wait_for_log(daemon, "certificate refused: self-signed certificate in")
    is_away(daemon)
    # By this OpenSSL looks elsewhere for the system's.
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    daemon.term()
    daemon.start()
    like_is_synced(daemon, pg)


@needs_tls
def test_a_plain_port_is_refused(bed, pg, trust):
    port = harness.free_port()
    redis = bed.redis(port=port, bind="127.0.0.1")
    redis.address = f"tls:127.0.0.1:{port}"
    daemon = bed.daemon(redis, pg, **trust, wait="answers",
                        redis_connect_timeout_ms=500)
    # Redis waits for the end of a line that a handshake may not hold.
    wait_for_log(daemon, "does not speak TLS there|the TLS handshake took")
    is_away(daemon)


@needs_tls
@pytest.mark.parametrize("answer, reason", [
    (None, "the TLS handshake took more than 300 ms"),
    (b"", "Server closed the connection in the TLS handshake"),
    (b"-ERR unknown command\r\n", "the server does not speak TLS there"),
    (b"\x15\x03\x03\x00\x02\x02\x28", "TLS: .*handshake failure"),
    (b"\x16\x03\x03\x40\x00", "the TLS handshake took more than 300 ms"),
])
def test_a_peer_that_is_no_redis(bed, redis, pg, trust, answer, reason):
    """It says this and no more; the daemon serves on meanwhile, and stops at
    once."""
    with socket.create_server(("127.0.0.1", 0)) as listener, \
            contextlib.ExitStack() as held:
        listener.settimeout(30)
        redis.address = f"tls:127.0.0.1:{listener.getsockname()[1]}"
        daemon = bed.daemon(redis, pg, **trust, wait=None,
                            redis_connect_timeout_ms=300)

        def met_again():
            peer = held.enter_context(listener.accept()[0])
            daemon.wait_up(daemon.answers)
            # The daemon may have given up before its turn came.
            with contextlib.suppress(OSError):
                if answer == b"":
                    peer.recv(5)
                    peer.shutdown(socket.SHUT_WR)
                elif answer:
                    peer.sendall(answer)
            return log_line(reason).search(daemon.log_text())

        wait_for(met_again, what=reason)
        is_away(daemon)
        daemon.term()


@needs_tls
def test_nothing_is_said_to_an_impostor(bed, redis, pg, stranger, trust,
                                        tmp_path):
    """Who has no certificate that is trusted gets no password."""
    password = tmp_path / "password"
    password.write_text("secret\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*stranger.issue(NAME))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        redis.address = f"tls:127.0.0.1:{listener.getsockname()[1]}"
        bed.daemon(redis, pg, **trust, wait=None,
                   redis_password_file=password)
        peer, _ = listener.accept()
        with pytest.raises(ssl.SSLError, match="unknown ca"):
            with context.wrap_socket(peer, server_side=True) as tls:
                assert tls.recv(1000) == b"nothing"


def served(listener, context):
    """The next TLS connection, or the SSLError that it ends with."""
    peer, _ = listener.accept()
    with contextlib.closing(peer):
        peer.settimeout(30)
        with pytest.raises((ssl.SSLError, OSError)) as caught:
            with context.wrap_socket(peer, server_side=True) as tls:
                tls.recv(1000)
                raise OSError("served")
        return caught.value


@needs_tls
@pytest.mark.parametrize("host, name, said", [
    ("localhost", None, "localhost"),
    ("127.0.0.1", NAME, NAME),
    ("127.0.0.1", None, None),
    ("localhost", "127.0.0.1", None),
])
def test_the_name_is_said_to_the_server(bed, redis, pg, authority, host, name,
                                        said):
    """So that one address may serve several. An IP address is no name."""
    seen = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("localhost", NAME, "127.0.0.1"))
    context.sni_callback = lambda tls, name, context: seen.append(name)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        redis.address = f"tls:{host}:{listener.getsockname()[1]}"
        bed.daemon(redis, pg, wait=None, redis_tls_ca=authority.file,
                   redis_tls_server_name=name)
        assert str(served(listener, context)) == "served"
    assert seen == [said]


@needs_tls
@pytest.mark.parametrize("version, end", [("TLSv1_1", "PROTOCOL"),
                                          ("TLSv1_2", "served"),
                                          ("TLSv1_3", "served")])
def test_old_versions_are_refused(bed, redis, pg, authority, certificate,
                                  trust, tmp_path, monkeypatch, version, end):
    """Also where the system's configuration would allow them."""
    config = tmp_path / "openssl.cnf"
    config.write_text("openssl_conf = c\n[c]\nssl_conf = s\n[s]\n"
                      "system_default = d\n[d]\nMinProtocol = TLSv1\n"
                      "CipherString = DEFAULT@SECLEVEL=0\n")
    monkeypatch.setenv("OPENSSL_CONF", str(config))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion[version]
    context.load_cert_chain(*certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        redis.address = f"tls:127.0.0.1:{listener.getsockname()[1]}"
        daemon = bed.daemon(redis, pg, **trust, wait=None)
        assert end in str(served(listener, context))
        if end != "served":
            wait_for_log(daemon, "alert protocol version")


# ---- new certificates ----

@needs_tls
def test_sighup_reads_the_certificates_again(bed, pg, authority, stranger,
                                             certificate, tmp_path):
    """From the next connection on; a file that is no good changes nothing."""
    ca = tmp_path / "ca.pem"
    shutil.copy(authority.file, ca)
    redis = TlsRedis(bed, certificate, authority)
    daemon = bed.daemon(redis, pg, redis_tls_ca=ca,
                        redis_tls_server_name=NAME)
    ca.write_text("no certificate\n")
    hup(daemon)
    assert f'config: redis.tls_ca = "{ca}": no certificate or crl found: ' \
        "the certificates read before stay" in daemon.log_text()
    redis.restart()
    daemon.wait_up(daemon.ready)
    shutil.copy(stranger.file, ca)
    hup(daemon)
    assert daemon.ready()
    redis.restart()
    wait_for_log(daemon, "certificate refused")
    redis.restart_with(stranger.issue(NAME))
    daemon.wait_up(daemon.ready)
    like_is_synced(daemon, pg)


def hup(daemon):
    seen = len(daemon.log_text())
    daemon.sighup()
    wait_for(lambda: "config: reloaded" in daemon.log_text()[seen:],
             what="the reload")
