# SPDX-License-Identifier: MIT
import bed as _  # noqa: F401
from fixtures import (bed, cluster, pg, pytest_runtest_makereport,  # noqa: F401
                      redis, session_bed)
