"""Processes that the bench starts."""

import sys
import time

from headrace.bench.cpu import cpu_time
from headrace.bench.process import Processes


def test_a_suspended_process_uses_no_cpu_until_it_is_resumed() -> None:
    with Processes() as processes:
        spinner = processes.start("spinner", [sys.executable, "-c", "while True: pass"])

        def used() -> float:
            before = cpu_time(spinner.pid).ns
            time.sleep(0.2)
            return cpu_time(spinner.pid).ns - before

        assert used() > 0
        processes.suspend(spinner)
        time.sleep(0.05)
        assert used() == 0
        processes.resume(spinner)
        assert used() > 0
        processes.suspend(spinner)
        began = time.monotonic()
        processes.stop(spinner)
        # It ended by its signal, not by the kill that follows one not heeded.
        assert time.monotonic() - began < 4
        assert not spinner.alive
