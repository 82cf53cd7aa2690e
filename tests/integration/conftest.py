# SPDX-License-Identifier: MIT
from fixtures import (bed, client, cluster, daemon, pg,  # noqa: F401
                      pytest_runtest_makereport, redis, session_bed)
