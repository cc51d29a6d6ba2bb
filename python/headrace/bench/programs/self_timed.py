"""Operations of a loop without any network, timed from inside: ``call_soon`` and ``call_later``.

    self_timed.py call-soon|timers --loop NAME --seconds S

Prints operations, seconds, their CPU nanoseconds and those of the whole process as JSON, and fails when a callback was
lost or ran twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from bench_support import LOOPS, new_loop

#: Operations between two looks at the clock.
BATCH = 10_000
#: Of this many timers one fires, the others are cancelled.
CANCELLED_OF = 10


async def call_soon(batch: int) -> int:
    """Schedule a batch of callbacks and wait until all have run."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    ran = 0

    def callback() -> None:
        nonlocal ran
        ran += 1

    for _ in range(batch - 1):
        loop.call_soon(callback)
    loop.call_soon(done.set_result, None)
    await done
    if ran != batch - 1:
        raise RuntimeError(f"{ran} of {batch - 1} callbacks ran")
    return batch


async def timers(batch: int) -> int:
    """Set a batch of timers, cancel nine of ten, and wait for the others."""
    loop = asyncio.get_running_loop()
    fired = 0

    def callback() -> None:
        nonlocal fired
        fired += 1

    handles = [loop.call_later(0.001 * (i % 10), callback) for i in range(batch)]
    for number, handle in enumerate(handles):
        if number % CANCELLED_OF:
            handle.cancel()
    await asyncio.sleep(0.012)
    if fired != batch // CANCELLED_OF:
        raise RuntimeError(f"{fired} of {batch // CANCELLED_OF} timers fired")
    return batch


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("call-soon", "timers"))
    parser.add_argument("--loop", choices=LOOPS, default="asyncio")
    parser.add_argument("--bind", help="not used: every program is told")
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    batch_of = {"call-soon": call_soon, "timers": timers}[args.what]
    loop = new_loop(args.loop)
    loop.run_until_complete(batch_of(BATCH))
    count, began, cpu = 0, time.perf_counter(), time.process_time_ns()
    while time.perf_counter() - began < args.seconds:
        count += loop.run_until_complete(batch_of(BATCH))
    took, cpu = time.perf_counter() - began, time.process_time_ns() - cpu
    whole = time.process_time_ns()
    print(json.dumps({"operations": count, "seconds": took, "cpu_ns": cpu, "process_cpu_ns": whole}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
