"""The Autobahn test suite against a WebSocket echo server.

    python tests/server/autobahn.py ws://HOST:PORT/PATH [--group framing|large|deflate]...

The suite runs on CPython 2.7 alone. It is found as $AUTOBAHN_PYTHON, as ``python2.7`` on the path, or among pyenv's
versions; what the suite needs is installed once into ``.cache`` of this checkout.

One line of JSON for each case: ``{"case", "behavior", "close", "seconds"}``. The exit status is 0 when every case of
the groups ran and passed, strictly; 1 when not; 2 for a mistake in the words; 3 when the suite cannot be had, with one
line that says what is missing.

- *framing*: frames, pings, reserved bits, opcodes, fragments, UTF-8, the closing handshake (1 to 7 and 10), in seconds;
- *large*: messages of up to 16 MB, in frames and TCP segments of many sizes (9), in a minute or two;
- *deflate*: permessage-deflate with all its parameters (12 and 13), in minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent

SUITE = "autobahntestsuite==25.10.1"

#: The patterns of each group's cases, and how many cases the suite has there.
GROUPS: dict[str, tuple[tuple[str, ...], int]] = {
    "framing": (("1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*"), 247),
    "large": (("9.*",), 54),
    "deflate": (("12.*", "13.*"), 216),
}

#: INFORMATIONAL is the verdict of cases that only record what a server does where the RFC leaves it free.
PASSED = {"OK", "INFORMATIONAL"}

#: Longer than any group takes on a busy machine, in seconds.
TIMEOUT = 3000

#: Starts the suite: its packages lie in a folder, with ``.pth`` files that only ``addsitedir`` honours.
WSTEST = (
    "import sys; folder = sys.argv.pop(1); sys.path.insert(0, folder); import site; site.addsitedir(folder); "
    "from autobahntestsuite.wstest import run; run()"
)


class Missing(Exception):
    """The suite cannot be had; the text says what is missing."""


def find_python() -> Path:
    """A CPython 2.7 that runs."""
    named = os.environ.get("AUTOBAHN_PYTHON")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    others = [shutil.which("python2.7"), *sorted(pyenv.glob("versions/2.7.*/bin/python2.7"), reverse=True)]
    candidates = [named] if named else others
    for candidate in candidates:
        if candidate and version_of(candidate) == "2.7":
            return Path(candidate)
    raise Missing("a CPython 2.7 for the Autobahn suite (name it in AUTOBAHN_PYTHON)")


def version_of(python: str | Path) -> str | None:
    """The version of an interpreter, as major.minor; None when it does not run."""
    code = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time go on."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(python: Path) -> Path:
    """The folder of the suite's packages, made when it is not there."""
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    folder = cache / SUITE.replace("==", "-")
    with locked(cache / f"{folder.name}.lock"):
        if folder.is_dir():
            return folder
        print(f"installing {SUITE}", file=sys.stderr, flush=True)
        # Made beside its place and moved there, so that what is half made is never taken for whole.
        with tempfile.TemporaryDirectory(dir=cache, prefix=f"{folder.name}-") as scratch:
            packages = Path(scratch) / "packages"
            command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
            command += ["--target", str(packages), SUITE]
            done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
            if done.returncode != 0:
                reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
                raise Missing(f"{SUITE}, which pip of {python} cannot install ({reason})")
            packages.rename(folder)
    return folder


def run(url: str, patterns: list[str]) -> dict[str, dict[str, Any]]:
    """Run the cases; the suite's verdicts, by case."""
    python = find_python()
    packages = install(python)
    with tempfile.TemporaryDirectory(prefix="autobahn-") as scratch:
        specification = {
            "outdir": str(Path(scratch) / "reports"),
            "servers": [{"agent": "server", "url": url}],
            "cases": patterns,
            "exclude-cases": [],
            "exclude-agent-cases": {},
        }
        file = Path(scratch) / "fuzzingclient.json"
        file.write_text(json.dumps(specification))
        command = [str(python), "-c", WSTEST, str(packages), "--mode", "fuzzingclient", "--spec", str(file)]
        # Its log goes to a file: nobody reads a pipe while it runs.
        log = Path(scratch) / "log"
        with log.open("w") as output:
            done = subprocess.run(
                [*command, "--webport", "0"],
                cwd=scratch,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT,
                check=False,
            )
        index = Path(scratch) / "reports" / "index.json"
        if not index.is_file():
            sys.stderr.write(log.read_text(errors="replace")[-4000:])
            raise SystemExit(f"the suite wrote no report (status {done.returncode})")
        verdicts: dict[str, dict[str, Any]] = json.loads(index.read_text()).get("server", {})
        return verdicts


def main() -> int:
    """Run what the words ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url", help="the echo server, ws://HOST:PORT/PATH")
    parser.add_argument("--group", action="append", choices=GROUPS, help="default: all of them")
    words = parser.parse_args()
    if not words.url.startswith("ws://"):
        parser.error("the URL must begin with ws://")
    groups = [GROUPS[name] for name in words.group or GROUPS]
    expected = sum(count for _, count in groups)
    try:
        verdicts = run(words.url, [pattern for patterns, _ in groups for pattern in patterns])
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 3
    failed = 0
    for case, verdict in sorted(
        verdicts.items(), key=lambda item: [int(part) for part in item[0].split(".")]
    ):
        behavior, close = verdict["behavior"], verdict["behaviorClose"]
        seconds = verdict["duration"] / 1000
        print(json.dumps({"case": case, "behavior": behavior, "close": close, "seconds": seconds}))
        if behavior not in PASSED or close not in PASSED:
            failed += 1
            print(f"failed: {case}: {behavior}, close {close}", file=sys.stderr)
    if len(verdicts) != expected:
        print(f"failed: {len(verdicts)} cases ran, the suite has {expected}", file=sys.stderr)
    print(f"{len(verdicts) - failed} of {expected} cases passed", file=sys.stderr)
    return 0 if failed == 0 and len(verdicts) == expected else 1


if __name__ == "__main__":
    sys.exit(main())
