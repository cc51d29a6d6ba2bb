"""Source 4: authenticate by MySQL, broadcast by RabbitMQ, answer; as a ladder from the naive version to the best."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

from headrace.bench import checks
from headrace.bench.model import PROGRAMS, Case, Endpoint, Scenario, WrongAnswer

GOOD = json.dumps({"token": "token-47", "channel": "channel-2", "text": "hello"}).encode()
FORBIDDEN = json.dumps({"token": "token-47", "channel": "channel-99", "text": "hello"}).encode()
JSON = "application/json"
#: Seconds until every message that was answered has to be in the queue.
ARRIVAL = 10.0
#: Seconds that an answer may take: the naive rung first works off all that the load has left in its queue.
PATIENCE = 60.0

#: Messages taken from each server's queue so far, by its name: a server counts from its start.
_taken: dict[str, int] = {}


def every_message_arrives_once(endpoint: Endpoint) -> None:
    """Messages are answered, refused where they must be, and each one sent is in the queue exactly once.

    :raises WrongAnswer: otherwise.
    """
    send = checks.http_answer(
        "/send", checks.json_body({"sent": True}), method="POST", sent=GOOD, timeout=PATIENCE
    )
    send(endpoint)
    url = f"http://{endpoint.bind}"
    try:
        urllib.request.urlopen(urllib.request.Request(url + "/send", FORBIDDEN), timeout=PATIENCE)
        raise WrongAnswer("a message that is not allowed was sent")
    except urllib.error.HTTPError as error:
        if error.code != 403:
            raise WrongAnswer(f"status {error.code} for a message that is not allowed") from None
    end = time.monotonic() + ARRIVAL
    while True:
        with urllib.request.urlopen(url + "/sent", timeout=PATIENCE) as answer:
            said = json.load(answer)
        queue = said["queue"]
        words = [sys.executable, str(PROGRAMS / "broadcast_drain.py"), said["broker"], queue]
        drained = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=120).stdout)
        if drained["messages"] != drained["distinct"]:
            raise WrongAnswer(
                f"{drained['messages']} messages with {drained['distinct']} numbers: some came twice"
            )
        _taken[queue] = _taken.get(queue, 0) + drained["messages"]
        if _taken[queue] == said["sent"]:
            return
        if time.monotonic() > end:
            raise WrongAnswer(f"{said['sent']} messages were sent, {_taken[queue]} arrived")


BROADCAST_API = Scenario(
    name="broadcast-api",
    summary="authenticate by look-ups in MySQL, publish to a RabbitMQ fanout exchange, answer; 64 connections",
    workloads={"broadcast": ()},
    cases=(
        Case(
            name="ladder",
            check=every_message_arrives_once,
            url="http://{bind}/send",
            connections=64,
            options=("--method", "POST", "--header", f"content-type: {JSON}", "--expect-status", "200"),
            body=GOOD,
        ),
    ),
    baseline="broadcast-01-naive",
    services=("mariadb", "rabbitmq"),
    pinned=False,
    ladder=True,
    least_seconds=1.0,
)
