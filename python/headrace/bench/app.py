"""``bench app MODULE:ATTR``: the user's application on every server that can host it, and where its time goes.

Where the time goes is measured, not guessed, by stand-ins on the same server in the same run: the kernel's part is the
process's system time; the server's is what an application that does nothing costs beyond that; the framework's is
what its own hello costs beyond the server; what is left is the application's.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from headrace.bench import checks, registry
from headrace.bench.model import PROGRAMS, Case, Contender, Endpoint, Package, Scenario, WrongAnswer
from headrace.bench.rounds import AGAIN
from headrace.cli import UsageError

#: What the user's own case is called in the document.
OWN = "app"
#: Names of the stand-ins in the document.
NOTHING, FRAMEWORK = "stand-in: an application that does nothing", "stand-in: the framework's hello"

#: The baseline for each interface: what most run today.
BASELINES = {"asgi": "uvicorn", "wsgi": "gunicorn-gthread", "tornado": "tornado-asyncio"}
#: An application that does nothing but answer, by interface.
NOTHINGS = {"asgi": "hello:asgi", "wsgi": "hello:wsgi", "tornado": "app_tornado_nothing:app"}
#: The hello of a framework, and its path. Django's has no middleware: what a project adds counts as the application's.
HELLOS: dict[str, tuple[str, str]] = {
    "flask": ("app_flask:app", "/"),
    "starlette": ("app_starlette:app", "/json"),
    "fastapi": ("app_fastapi:app", "/hello"),
    "django": ("app_django_hello:{interface}", "/"),
    "tornado": ("app_tornado:app", "/"),
}


@dataclass
class SameAnswer:
    """Holds all servers to the first one's answer.

    A body that differs between two requests to one server (a date, a counter) is not compared between servers.
    """

    path: str
    known: tuple[int, str, bytes | None] | None = field(default=None)

    def __call__(self, endpoint: Endpoint) -> None:
        """Ask twice and compare.

        :raises WrongAnswer: for an answer that another server did not give, or an error of the server's.
        """
        first, second = self._ask(endpoint), self._ask(endpoint)
        if first[0] >= 400:
            raise WrongAnswer(f"status {first[0]} for {self.path}: {first[2][:200]!r}")
        body = first[2] if first[2] == second[2] else None
        kind = first[1].partition(";")[0].strip()
        if self.known is None:
            self.known = (first[0], kind, body)
            return
        status, wanted_kind, wanted = self.known
        if (first[0], kind) != (status, wanted_kind):
            raise WrongAnswer(f"status {first[0]}, {kind}; the first server gave {status}, {wanted_kind}")
        if wanted is not None and body is not None and body != wanted:
            raise WrongAnswer(f"{len(body)} bytes that differ from the first server's {len(wanted)}")

    @property
    def varies(self) -> bool:
        """Whether bodies differ from request to request."""
        return self.known is not None and self.known[2] is None

    def _ask(self, endpoint: Endpoint) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=checks.TIMEOUT)
        try:
            connection.request("GET", self.path)
            answer = connection.getresponse()
            return answer.status, answer.getheader("content-type") or "", answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise WrongAnswer(f"{type(error).__name__}: {error}") from None
        finally:
            connection.close()


def inspect(app: str, folder: Path) -> dict[str, str]:
    """The interface and framework of an application, found out in a process of its own.

    :raises UsageError: when it cannot be loaded.
    """
    if not re.fullmatch(r"[\w.]+:[\w.]+", app):
        raise UsageError(f"{app!r} is not MODULE:ATTR")
    words = [sys.executable, str(PROGRAMS / "app_kind.py"), app]
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        raise UsageError(f"loading {app} took longer than 60 s") from None
    last = (done.stdout.strip().splitlines() or [""])[-1]
    try:
        found: dict[str, str] = json.loads(last)
    except ValueError:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UsageError(f"cannot load {app}: {why}") from None
    if "error" in found:
        raise UsageError(f"cannot load {app}: {found['error']}")
    return found


def scenarios(app: str, kind: Mapping[str, str], path: str, connections: int, folder: Path) -> list[Scenario]:
    """The user's own scenario and those of its stand-ins.

    :param kind: what ``inspect`` found.
    :param path: the path that is asked for.
    :param folder: where the application is loaded.
    """
    interface, framework = kind["interface"], kind["framework"]
    baseline = BASELINES[interface]
    url = "http://{bind}" + path
    case = Case(path, SameAnswer(path), url, connections, ("--any-length",), folder=folder)
    found = [Scenario(OWN, f"{app}, {path}", {interface: (app,)}, (case,), baseline)]
    hello = Case("hello", checks.http_answer("/", b"hello world\n"), "http://{bind}/", connections)
    found.append(
        Scenario(NOTHING, NOTHINGS[interface], {interface: (NOTHINGS[interface],)}, (hello,), baseline)
    )
    if framework in HELLOS:
        name, at = HELLOS[framework][0].format(interface=interface), HELLOS[framework][1]
        needs = (Package(framework),)
        case = Case(at, SameAnswer(at), "http://{bind}" + at, connections)
        found.append(Scenario(FRAMEWORK, name, {interface: (name,)}, (case,), baseline, needs=needs))
    return found


def against(words: Sequence[str], scenario: Scenario) -> list[str]:
    """The contenders for words such as ``granian`` or ``gunicorn:gevent``; all of this environment for none.

    :raises UsageError: for a word that fits nothing.
    """
    able: list[Contender] = [
        contender
        for contender in registry.hosts_of(scenario)
        # The application and what it imports are installed here, not in a rival's own environment.
        if contender.environment is None
    ]
    if not words:
        return [contender.name for contender in able]
    chosen: list[str] = [contender.name for contender in able if contender.name.startswith("headrace")]
    for word in words:
        start = word.replace(":", "-")
        fitting = [each.name for each in able if each.name == start] or [
            each.name for each in able if each.name.startswith(start + "-")
        ]
        if not fitting:
            raise UsageError(
                f"nothing called {word!r} hosts this; these do: {', '.join(c.name for c in able)}"
            )
        chosen += fitting
    return list(dict.fromkeys(chosen))


def where_time_goes(document: Mapping[str, Any]) -> Iterator[str]:
    """The sentences on where a request's time goes, a server each."""
    cost = {scenario["name"]: _costs(scenario) for scenario in document["scenarios"]}
    for name, (total, kernel) in cost.get(OWN, {}).items():
        if name.endswith(AGAIN) or name not in cost.get(NOTHING, {}):
            continue
        bare, bare_kernel = cost[NOTHING][name]
        server = bare - bare_kernel
        parts = [f"kernel {kernel:.1f}", f"server {server:.1f}"]
        rest = total - kernel - server
        if name in cost.get(FRAMEWORK, {}):
            hello, hello_kernel = cost[FRAMEWORK][name]
            framework = max(hello - hello_kernel - server, 0.0)
            parts += [f"framework {framework:.1f}", f"application {max(rest - framework, 0.0):.1f}"]
        else:
            parts.append(f"framework and application {max(rest, 0.0):.1f}")
        yield f"{name}: {total:.1f} us of CPU a request: {', '.join(parts)}"


def gains(document: Mapping[str, Any]) -> Iterator[str]:
    """What switching would gain, a sentence for each server that was measured."""
    for scenario in document["scenarios"]:
        if scenario["name"] != OWN:
            continue
        for row in scenario["cases"][0]["summary"]["rows"]:
            if not row["verdict"]:
                continue
            found = row["ratio"]
            kind = row["verdict"]["kind"]
            if kind == "cannot tell":
                yield f"switching to {row['name']} would gain nothing measurable"
            elif kind == "better":
                low, high = 1 / found["high"], 1 / found["low"]
                more = (
                    f"{1 / found['value']:.2f} times the requests ({low:.2f} to {high:.2f}) on the same cores"
                )
                yield f"switching from {scenario['baseline']} to {row['name']} would serve {more}"


def _costs(scenario: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Microseconds of CPU a request, and the kernel's part of them, of each contender."""
    found = {}
    for contender in scenario["cases"][0]["contenders"] if scenario["cases"] else ():
        rounds = [each for each in contender["rounds"] if each["cpu_ns_per_request"]]
        if rounds:
            total = median(each["cpu_ns_per_request"] for each in rounds) / 1000
            kernel = median(each["cpu_ns_per_request"] * each["system_share"] for each in rounds) / 1000
            found[contender["name"]] = (total, kernel)
    return found
