"""Source 1's Tornado application. Its three loops differed by 0.07 % under ab: what they shared was the limit."""

from headrace.bench import checks
from headrace.bench.model import Case, Package, Scenario

GOOD = ("--expect-status", "200")
WORKLOADS = {"tornado": ("app_tornado:app",)}
TORNADO = (Package("tornado"),)

TORNADO_HELLO = Scenario(
    name="tornado-hello",
    summary="a plain string from a Tornado handler, 100 connections",
    workloads=WORKLOADS,
    cases=(Case("hello", checks.http_answer("/", b"hello world\n"), "http://{bind}/", 100, GOOD),),
    baseline="tornado-uvloop",
    needs=TORNADO,
)

TORNADO_HTTP_CLIENT = Scenario(
    name="tornado-http-client",
    summary="the handler calls a local API by AsyncHTTPClient, 100 connections",
    workloads=WORKLOADS,
    cases=(
        Case(
            "one call",
            checks.http_answer("/client", checks.json_body({"double": 14})),
            "http://{bind}/client",
            100,
            GOOD,
        ),
    ),
    baseline="tornado-uvloop",
    services=("upstream",),
    needs=TORNADO,
)

TORNADO_SLEEP = Scenario(
    name="tornado-sleep",
    summary="the handler sleeps 20 ms, 100 connections",
    workloads=WORKLOADS,
    cases=(Case("20 ms", checks.http_answer("/sleep", b"awake\n"), "http://{bind}/sleep", 100, GOOD),),
    baseline="tornado-uvloop",
    needs=TORNADO,
)
