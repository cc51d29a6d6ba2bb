"""The broadcast API at the step that ``BENCH_STEP`` names, as a Tornado application for servers that host one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from broadcast_api import application

app = application(os.environ["BENCH_STEP"])
