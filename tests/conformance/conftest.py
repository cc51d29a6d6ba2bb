"""Puts this folder on the path, for the reader of the vectors that the fuzzers' seeds need too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
