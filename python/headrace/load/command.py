"""``headrace load``: options in, one run, a table or JSON out."""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
from pathlib import Path
from typing import Any

from headrace.cli import UsageError
from headrace.load import compat
from headrace.load.request_file import read_requests
from headrace.load.runner import run_load
from headrace.load.search import find_rate
from headrace.load.table import table

#: Descriptors that a process needs beside its connections.
SPARE_DESCRIPTORS = 64


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``headrace load``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "URLs:\n"
        "  http://HOST[:PORT]/PATH  https://...  http+unix:SOCKET:/PATH\n"
        "  ws://HOST[:PORT]/PATH  wss://...          messages of --body-size (256) or --body, echoed by the server\n"
        "  tcp://HOST:PORT?size=N  tls://…  unix:SOCKET?size=N  echo of N bytes\n"
        "  redis://HOST[:PORT]?get=W&set=W&incr=W&ping=W&keys=N&size=N&order=random|turn  redis+unix:SOCKET?...\n"
        "Exit status: 0 some requests succeeded, 1 none did, 2 wrong usage, 130 interrupted."
    )
    add = parser.add_argument
    add("url", metavar="URL", help="what to load")
    add("-c", "--connections", type=int, default=64, metavar="N", help="open connections (64)")
    add("-d", "--duration", type=float, default=10.0, metavar="S", help="seconds to measure (10)")
    add("--warmup", type=float, default=0.0, metavar="S", help="seconds to load before measuring (0)")
    add("-t", "--threads", type=int, default=1, metavar="N", help="threads that share the connections (1)")
    add(
        "--rate",
        type=rates,
        metavar="R|R..R",
        help="requests a second, sent on time whatever the answers do (open loop); FROM..TO is a ramp",
    )
    add("--poisson", action="store_true", help="with --rate: random arrivals in place of even ones")
    add("--find-rate", action="store_true", help="search the highest rate that keeps --p99 without errors")
    add("--p99", type=microseconds, metavar="T", help="with --find-rate: the goal, such as 20ms")
    add("--pipeline", type=int, default=1, metavar="N", help="requests in one piece on a connection (1)")
    add("--timeout", type=float, default=10.0, metavar="S", help="seconds to connect, and for an answer (10)")
    add("--seed", type=int, metavar="N", help="repeat what is random: the seed of an earlier result")
    http = parser.add_argument_group("HTTP and WebSocket")
    http.add_argument("-m", "--method", default="GET", help="method (GET)")
    http.add_argument(
        "-H", "--header", action="append", default=[], metavar="'NAME: VALUE'", help="a field to send"
    )
    http.add_argument("--requests", type=Path, metavar="FILE", help="requests with weights: JSON or TOML")
    http.add_argument(
        "--cacert", type=Path, metavar="FILE", help="verify the server's certificate by these (PEM)"
    )
    body = http.add_mutually_exclusive_group()
    body.add_argument("--body", type=Path, metavar="FILE", help="body to send")
    body.add_argument("--body-size", type=int, metavar="N", help="send a body of N bytes of text")
    checks = parser.add_argument_group(
        "checks", "by default each answer must have the first one's status, below 400, and its length"
    )
    checks.add_argument("--expect-status", type=int, metavar="CODE", help="status of a good answer")
    checks.add_argument("--expect-body-length", type=int, metavar="N", help="bytes of a good answer's body")
    checks.add_argument(
        "--expect-body", type=Path, metavar="FILE", help="body of a good answer, byte for byte"
    )
    checks.add_argument("--any-length", action="store_true", help="bodies may differ in length")
    output = parser.add_argument_group("output")
    output.add_argument("--json", metavar="FILE", help="write the result as JSON; - for standard output")
    output.add_argument(
        "--pid", type=int, metavar="PID", help="count this process's CPU time, children's too"
    )
    output.add_argument("--hdr-log", type=Path, metavar="FILE", help="write a histogram of each second")
    output.add_argument(
        "--compat", choices=compat.TOOLS, help="print the figures in that tool's form as well"
    )
    output.add_argument("--quiet", action="store_true", help="no progress line")


def rates(text: str) -> tuple[float, float]:
    """``R`` or ``FROM..TO``, requests a second."""
    low, dots, high = text.partition("..")
    return float(low), float(high if dots else low)


def microseconds(text: str) -> float:
    """A time with its unit: ``20ms``, ``1.5s``, ``300us``."""
    for unit, factor in (("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6)):
        if text.endswith(unit):
            value = float(text.removesuffix(unit)) * factor
            if not 0 < value < 1e12:
                raise ValueError(text)
            return value
    raise ValueError(text)


def run(args: argparse.Namespace) -> int:
    """Run ``headrace load``.

    :returns: 0 when requests succeeded, 1 when none did (or no rate keeps the goal), 130 when interrupted.
    :raises UsageError: for what cannot be done as asked.
    """
    check(args)
    allow_descriptors(args.connections + SPARE_DESCRIPTORS)
    defaults = {
        "method": args.method,
        "headers": args.header,
        "body": read(args.body),
        "body_size": args.body_size,
        "expect_status": args.expect_status,
        "expect_body_length": args.expect_body_length,
        "expect_body": read(args.expect_body),
        "any_length": args.any_length,
    }
    cacert = read(args.cacert)
    seed = random.getrandbits(32) if args.seed is None else args.seed
    requests = [defaults] if args.requests is None else read_requests(args.requests, defaults)

    def load(rate: float | None, rate_to: float | None = None) -> dict[str, Any]:
        return run_load(
            args.url,
            progress=not args.quiet and sys.stderr.isatty(),
            hdr_log=args.hdr_log,
            connections=args.connections,
            threads=args.threads,
            duration=args.duration,
            warmup=args.warmup,
            rate=rate,
            rate_to=rate_to,
            poisson=args.poisson,
            pipeline=args.pipeline,
            timeout=args.timeout,
            pid=args.pid,
            seed=seed,
            cacert=cacert,
            requests=requests,
        )

    if args.find_rate:
        result = find_rate(load, args.p99, lambda line: print(line, file=sys.stderr, flush=True))
    else:
        result = load(*(args.rate or (None, None)))
    write(result | {"seed": seed}, args.json, args.compat)
    if result["interrupted"]:
        return 130
    reached = result["search"]["rate"] is not None if args.find_rate else result["requests"] > 0
    return 0 if reached else 1


def check(args: argparse.Namespace) -> None:
    """Refuse options that cannot be meant; the native part refuses the others."""
    for name in ("connections", "threads", "pipeline", "pid", "seed", "body_size", "expect_body_length"):
        value = getattr(args, name)
        if value is not None and not 0 <= value < 2**32:
            raise UsageError(f"--{name.replace('_', '-')} must be a number from 0 to {2**32 - 1}")
    if args.expect_status is not None and not 100 <= args.expect_status <= 999:
        raise UsageError("--expect-status must have three digits")
    if args.find_rate and (args.p99 is None or args.rate is not None or args.pipeline != 1):
        raise UsageError("--find-rate needs --p99 (such as --p99 20ms), and neither --rate nor --pipeline")
    if args.p99 is not None and not args.find_rate:
        raise UsageError("--p99 is the goal of --find-rate")
    if args.poisson and args.rate is None and not args.find_rate:
        raise UsageError("--poisson needs --rate")


def write(result: dict[str, Any], where: str | None, tool: str | None) -> None:
    """Print the table, or the JSON to where it is wanted (with the table beside it, when that is a file).

    :param tool: an old tool in whose form the figures are printed as well.
    """
    if where == "-":
        print(json.dumps(result))
        return
    if where is not None:
        try:
            Path(where).write_text(json.dumps(result, indent=1) + "\n")
        except OSError as error:
            raise UsageError(f"cannot write {where}: {error.strerror}") from None
    print(table(result))
    if tool is not None:
        print("\n" + compat.in_form_of(tool, result))


def read(path: Path | None) -> bytes | None:
    """The bytes of a file that the user named."""
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def allow_descriptors(wanted: int) -> None:
    """Raise this process's soft limit of open files, as far as the hard limit lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise UsageError(
            f"so many connections need {wanted} open files, the limit is {hard}: raise ulimit -n"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
