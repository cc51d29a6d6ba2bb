"""The sources: every published figure has its counterpart, and measured ones are shown in the same terms."""

from __future__ import annotations

from headrace.bench import registry, sources


def test_every_published_figure_has_a_counterpart_that_exists():
    published = sources.rows()
    assert len(published) == 99
    scenarios = registry.scenarios()
    for row in published:
        stands = sources.counterpart(row)
        scenario = scenarios[stands.scenario]
        able = {contender.name for contender in registry.hosts_of(scenario)}
        assert set(stands.contenders) <= able, (row, set(stands.contenders) - able)
        assert stands.case in ("", *(case.name for case in scenario.cases)), row


def measured(scenario: str, case: str, rates: dict[str, float]) -> dict:
    """A document with one round of each contender."""
    contenders = []
    for name, rate in rates.items():
        load = {
            "requests": int(rate),
            "requests_per_second": rate,
            "bytes_in": int(rate) * 200,
            "errors": dict.fromkeys(("connect", "read", "write", "timeout", "status", "body", "protocol"), 0),
            "latency_us": dict.fromkeys(("min", "mean", "stdev", "p50", "p99", "max"), 1500.0),
            "server": {"cpu_ns_per_request": 1e9 / rate},
        }
        contenders.append({"name": name, "rounds": [{"load": load}]})
    return {
        "scenarios": [
            {"name": scenario, "cases": [{"name": case, "connections": 100, "contenders": contenders}]}
        ]
    }


def line_after(text: list[str], part: str) -> str:
    """The line that follows the one with a part."""
    return text[next(i for i, line in enumerate(text) if part in line) + 1]


def test_without_runs_each_row_says_what_measures_it():
    text = list(sources.lines([]))
    assert sum("published:" in line for line in text) == 99
    assert "headrace bench run tornado-hello --contenders tornado-uvloop" in line_after(
        text, "tornado-uvloop rps"
    )


def test_every_metric_of_a_measured_row_is_shown_in_its_own_terms():
    runs = [
        measured("tornado-hello", "hello", {"tornado-asyncio": 8000.0, "tornado-uvloop": 9000.0}),
        measured(
            "flask-redis",
            "INCR then GET",
            {f"gunicorn-{kind}": 2000.0 for kind in ("sync", "tornado", "eventlet", "gevent")},
        ),
        measured("broadcast-api", "ladder", dict.fromkeys(sources.LADDER, 500.0)),
        measured("redis", "GET missing", dict.fromkeys(sources.REDIS, 50_000.0)),
    ]
    text = list(sources.lines(runs))
    assert "9,000 req/s" in line_after(text, "tornado-uvloop rps 1781.98")
    # 10,000 requests at 9,000 a second; 100 connections share the rate.
    assert "1.111 s" in line_after(text, "tornado-uvloop time_taken")
    assert "11.111/0.111 ms" in line_after(text, "tornado-uvloop time_per_request_mean/across")
    assert "1,758 KB/s" in line_after(text, "tornado-uvloop transfer_rate")
    assert "0/0/0/0" in line_after(text, "tornado-uvloop errors_connect")
    assert "1.00 times" in line_after(text, "asyncio vs gevent")
    assert "2,000 req/s" in line_after(text, "sync time/complete/failed/rps")
    for source in ("3", "4", "5"):
        rows = [line for line in text if line.startswith(f"source {source}")]
        assert rows
    assert not any("not measured" in line for line in text if "flask-redis" in line)


def test_a_row_whose_contender_gave_no_good_answer_says_so():
    runs = [measured("broadcast-api", "ladder", {**dict.fromkeys(sources.LADDER, 500.0)})]
    for contender in runs[0]["scenarios"][0]["cases"][0]["contenders"]:
        if contender["name"] == "broadcast-03-indexes":
            contender["rounds"][0]["load"] |= {"requests": 0, "requests_per_second": 0.0, "latency_us": {}}
    text = list(sources.lines(runs))
    assert "no good answer, 0 errors" in line_after(text, "sqlalchemy ORM vs raw pymysql")


def test_what_is_wanted_has_every_counterpart_and_ours_beside_it():
    wanted = sources.wanted()
    for row in sources.rows():
        stands = sources.counterpart(row)
        names, cases = wanted[stands.scenario]
        assert set(stands.contenders) <= set(names)
        assert not stands.case or stands.case in cases
    for scenario, (names, cases) in wanted.items():
        able = {each.name for each in registry.hosts_of(registry.scenarios()[scenario])}
        assert set(names) <= able and any("headrace" in name for name in names), scenario
        assert set(cases) <= {case.name for case in registry.scenarios()[scenario].cases}


def test_what_ran_out_is_told_from_the_sweep():
    point = {
        "value": 500,
        "errors": 0,
        "first_error": None,
        "log": "",
        "requests_per_second": 9.0,
        "seconds": 1.0,
    }
    failed = {**point, "errors": 17, "first_error": "status: status 503", "log": "TooManyConnectionsError"}
    lines = [{"name": "asyncpg-connect", "points": [failed]}, {"name": "motor-connect", "points": [point]}]
    case = {
        "name": "one row",
        "connections": 100,
        "contenders": [],
        "sweeps": [{"parameter": "connections", "lines": lines}],
    }
    text = list(sources.lines([{"scenarios": [{"name": "db-read", "cases": [case]}]}]))
    assert "500 connections: 17 errors: status: status 503; TooManyConnectionsError" in line_after(
        text, "Too Many Connection"
    )
    assert "motor-connect with 500 connections: no error" in line_after(text, "assign requested address")


def test_a_ladder_is_shown_in_its_order_and_stacks_at_every_size():
    rates = {name: 100.0 if "headrace" in name else 900.0 for name in sources.LADDER}
    text = list(sources.lines([measured("broadcast-api", "ladder", rates)]))
    shown = line_after(text, "thread-pool offload")
    assert shown.index("01-naive") < shown.index("12-headrace") < shown.index("14-two-workers")
    runs = [
        measured("http-sizes", case, {"aiohttp-asyncio": 9.0, "go": 5.0, "nodejs": 7.0})
        for case in ("1 KB", "100 KB")
    ]
    shown = line_after(text := list(sources.lines(runs)), "asyncio+aiohttp|uvloop+aiohttp")
    assert "1 KB: go 5/s, nodejs 7/s, aiohttp-asyncio 9/s; 100 KB: go" in shown
