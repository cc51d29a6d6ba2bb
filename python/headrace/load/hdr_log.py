"""HDR histogram logs: a line for each second, in the format that HdrHistogram's own tools read.

Format version 1.3, as HdrHistogram's ``HistogramLogWriter`` writes it. Values are microseconds, so
``HistogramLogProcessor`` needs ``-outputValueUnitRatio 1000`` to show milliseconds.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence

from headrace import __version__

#: The column ``Interval_Max`` is in milliseconds.
MICROSECONDS = 1_000


def lines(intervals: Sequence[tuple[int, int, bytes]], seconds: float, ended: float) -> Iterator[str]:
    """The lines of a log.

    :param intervals: for each second: answers, the longest latency in µs, the histogram (V2, deflated).
    :param seconds: how long the run was; the last interval may be shorter than a second.
    :param ended: when it ended, in seconds since 1970.
    """
    started = ended - seconds
    yield f"#[Logged with headrace load {__version__}; values in microseconds]"
    yield "#[Histogram log format version 1.3]"
    clock = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(started))
    yield f"#[StartTime: {started:.3f} (seconds since epoch), {clock}]"
    yield '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
    for number, (_, longest, histogram) in enumerate(intervals):
        length = max(0.0, min(1.0, seconds - number))
        encoded = base64.b64encode(histogram).decode("ascii")
        yield f"{number:.3f},{length:.3f},{longest / MICROSECONDS:.3f},{encoded}"
