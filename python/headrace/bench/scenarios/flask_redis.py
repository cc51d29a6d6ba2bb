"""Source 5: Flask, INCR then GET, four workers, 500 connections.

The source's ``ab`` without ``-l`` counts each answer of another length than the first as failed, and a counter's
answers grow: its 793 and 543 failures may be that. Here lengths may differ, and the numbers have to rise.
"""

import http.client

from headrace.bench import checks
from headrace.bench.model import Case, Endpoint, Package, Scenario, Sweep, WrongAnswer


def numbers_rise(endpoint: Endpoint) -> None:
    """Three answers are numbers, each higher than the one before.

    :raises WrongAnswer: otherwise.
    """
    last = 0
    for _ in range(3):
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=checks.TIMEOUT)
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise WrongAnswer(f"{type(error).__name__}: {error}") from None
        finally:
            connection.close()
        if answer.status != 200 or not body.isdigit() or int(body) <= last:
            raise WrongAnswer(f"status {answer.status}, {body[:80]!r} after {last}")
        last = int(body)


FLASK_REDIS = Scenario(
    name="flask-redis",
    summary="Flask: INCR, then GET, in Redis; four workers, 500 connections",
    workloads={"wsgi": ("app_flask_redis:app",)},
    cases=(
        Case(
            name="INCR then GET",
            check=numbers_rise,
            url="http://{bind}/",
            connections=500,
            options=("--expect-status", "200", "--any-length"),
        ),
    ),
    least_seconds=1.0,
    baseline="gunicorn-gevent",
    workers=4,
    pinned=False,
    # Beyond the queue of a listening socket (2048 in gunicorn) connections wait for longer than clients do.
    sweeps=(Sweep("connections", (50, 500, 2000, 4000)),),
    services=("redis",),
    needs=(Package("flask"), Package("flask-redis")),
)
