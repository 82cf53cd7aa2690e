# SPDX-License-Identifier: MIT
"""Redis and PostgreSQL, started by the tests: see harness.py, which is what
tests import."""
from postgres import (DAEMON_ROLE, ROLES, SCHEMA, SUPERUSER, Database, Postgres,
                      Spread, Standby, initdb, pg_bin)
from processes import (ROOT, Failed, Server, free_port, process_state, run,
                       run_status, unprivileged_user, wait_for, wrapped)
from redis_server import Redis, resp_client

__all__ = [
    "DAEMON_ROLE", "ROLES", "ROOT", "SCHEMA", "SUPERUSER", "Database", "Failed",
    "Postgres", "Redis", "Server", "Spread", "Standby", "free_port", "initdb",
    "pg_bin", "process_state", "resp_client", "run", "run_status",
    "unprivileged_user", "wait_for", "wrapped"]
