# SPDX-License-Identifier: MIT
"""Fixtures: a PostgreSQL cluster for the session, everything else per test.

A test that only needs a working daemon takes `daemon`, `client`, `pg` or
`redis`; one that stops or configures servers makes its own with `bed`."""
import pytest

import harness


@pytest.fixture(scope="session")
def session_bed():
    with harness.Bed() as bed:
        bed.template = harness.make_pg_template(bed)
        yield bed


@pytest.fixture(scope="session")
def cluster(session_bed):
    """The session's PostgreSQL: not to be stopped, see `bed` for one's own."""
    return session_bed.postgres()


@pytest.fixture
def bed(session_bed, request):
    """An empty bed. Its logs are shown when the test fails."""
    bed = harness.Bed(template=session_bed.template)
    request.node.bed = bed
    bed.databases = []
    yield bed
    try:
        bed.close()
    finally:
        # Not before: its daemons still write to them while they end.
        for database in bed.databases:
            database.drop()


@pytest.fixture
def redis(bed):
    return bed.redis()


@pytest.fixture
def pg(bed, cluster):
    """A database with the schema, in the session's cluster."""
    database = cluster.create_database()
    bed.databases.append(database)
    return database


@pytest.fixture
def daemon(bed, redis, pg):
    return bed.daemon(redis, pg)


@pytest.fixture
def client(daemon):
    with daemon.client() as client:
        yield client


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    bed = getattr(item, "bed", None)
    if report.failed and bed is not None:
        for name, text in bed.logs():
            report.sections.append((f"log of {name}", text))
