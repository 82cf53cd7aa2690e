# SPDX-License-Identifier: MIT
"""Where the test bed of the integration tests is; imported before it."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
