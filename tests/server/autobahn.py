"""The Autobahn test suite against a WebSocket echo server, or with an echo client.

    python tests/server/autobahn.py [--group framing|large|deflate]... ws://HOST:PORT/PATH
    python tests/server/autobahn.py [--group ...] --client COMMAND...

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
import socket
import subprocess
import sys
import tempfile
import time
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


class Suite:
    """The suite, installed, with a scratch folder for one run."""

    def __init__(self, patterns: list[str], scratch: Path) -> None:
        python = find_python()
        self._command = [str(python), "-c", WSTEST, str(install(python))]
        self._patterns = patterns
        self._scratch = scratch
        self._log = scratch / "log"

    def start(self, mode: str, **settings: object) -> subprocess.Popen[bytes]:
        """Start ``wstest`` in that mode."""
        specification = {"cases": self._patterns, "exclude-cases": [], "exclude-agent-cases": {}, **settings}
        specification["outdir"] = str(self._scratch / "reports")
        file = self._scratch / "specification.json"
        file.write_text(json.dumps(specification))
        # Its log goes to a file: nobody reads a pipe while it runs.
        with self._log.open("w") as log:
            return subprocess.Popen(
                [*self._command, "--mode", mode, "--spec", str(file), "--webport", "0"],
                cwd=self._scratch,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def verdicts(self, agent: str) -> dict[str, dict[str, Any]]:
        """What the report says, by case."""
        index = self._scratch / "reports" / "index.json"
        if not index.is_file():
            sys.stderr.write(self._log.read_text(errors="replace")[-4000:])
            raise SystemExit("the suite wrote no report")
        found: dict[str, dict[str, Any]] = json.loads(index.read_text()).get(agent, {})
        return found


def run_server(suite: Suite, url: str) -> dict[str, dict[str, Any]]:
    """Run the cases against the server at that URL."""
    with suite.start("fuzzingclient", servers=[{"agent": "server", "url": url}]) as process:
        end(process, wait=TIMEOUT)
    return suite.verdicts("server")


def run_client(suite: Suite, command: list[str]) -> dict[str, dict[str, Any]]:
    """Run the cases with the client that this command starts; the suite's URL is its last word."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"ws://127.0.0.1:{port}"
    with suite.start("fuzzingserver", url=url) as process:
        try:
            while process.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
                    break
                time.sleep(0.1)
            subprocess.run([*command, url], timeout=TIMEOUT, check=False)
        finally:
            end(process, wait=0)
    return suite.verdicts("client")


def end(process: subprocess.Popen[bytes], wait: float) -> None:
    """Wait for a process's end for so many seconds, and then bring it about."""
    try:
        process.wait(wait)
    except subprocess.TimeoutExpired:
        process.terminate()


def main() -> int:
    """Run what the words ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--group", action="append", choices=GROUPS, help="default: all of them")
    parser.add_argument("--client", action="store_true", help="test a client: the words are its command")
    parser.add_argument(
        "words", nargs="+", metavar="URL|COMMAND", help="the echo server, ws://HOST:PORT/PATH"
    )
    options = parser.parse_args()
    if not options.client and (len(options.words) != 1 or not options.words[0].startswith("ws://")):
        parser.error("give one URL, which begins with ws://")
    groups = [GROUPS[name] for name in options.group or GROUPS]
    expected = sum(count for _, count in groups)
    with tempfile.TemporaryDirectory(prefix="autobahn-") as scratch:
        try:
            suite = Suite([pattern for patterns, _ in groups for pattern in patterns], Path(scratch))
        except Missing as missing:
            print(missing, file=sys.stderr)
            return 3
        verdicts = run_client(suite, options.words) if options.client else run_server(suite, options.words[0])
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
