"""Put the figures of a run into both READMEs, between their `figures` marks, so that nobody types them.

    python tools/readme_figures.py RUN.json...

The runs, as `headrace bench run --json RUN.json` writes them, have `http-hello` and `tcp-echo` between them.
"""

# ruff: noqa: RUF001 (Chinese punctuation is meant)

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

#: Contender -> the one it stands against in the table: the faster of a rival's builds, of the same interface.
SERVERS = {
    "headrace-asgi": "uvicorn",
    "uvicorn": "",
    "granian-asgi": "uvicorn",
    "fastpysgi-asgi": "uvicorn",
    "headrace-wsgi": "granian-wsgi",
    "headrace-wsgi-threads": "granian-wsgi",
    "granian-wsgi": "",
    "fastpysgi-wsgi": "granian-wsgi",
    "gunicorn-gthread": "granian-wsgi",
    "gunicorn-sync": "granian-wsgi",
}
LOOPS = {
    "headrace": "uvloop",
    "uvloop": "",
    "asyncio": "uvloop",
    "headrace-streams": "uvloop-streams",
    "uvloop-streams": "",
    "asyncio-streams": "uvloop-streams",
}
#: Rivals that stand in the table by the faster of two builds.
BUILDS = {
    "uvicorn": ("uvicorn", "uvicorn-uvloop-0.22"),
    "uvloop": ("uvloop", "uvloop-0.22"),
    "uvloop-streams": ("uvloop-streams", "uvloop-0.22-streams"),
}
#: Language of a README -> its words.
WORDS = {
    "README.md": {
        "http": "`http-hello`: 12 bytes of text, 64 connections",
        "tcp": "`tcp-echo`, 10 connections",
        "head": ("server", "CPU µs/request", "against", "requests/s"),
        "loops": ("loop", "1 KB", "10 KB", "100 KB"),
        "machine": "Measured on {date}: {machine}. Release build, {python}; one core for the server, the other for "
        "the client. CPU time per request of the server's process tree, median of {rounds} interleaved rounds; for "
        "the loops CPU µs/message. Rivals stand with the faster of their builds.",
    },
    "README.zh-CN.md": {
        "http": "`http-hello`：12 字节文本，64 个连接",
        "tcp": "`tcp-echo`，10 个连接",
        "head": ("服务器", "每请求 CPU 微秒", "相对于", "每秒请求数"),
        "loops": ("循环", "1 KB", "10 KB", "100 KB"),
        "machine": "测于 {date}：{machine}。release 版本，{python}；服务器和客户端各占一个核。数值是服务器进程树每个"
        "请求所用的 CPU 时间，取 {rounds} 轮交错测量的中位数；循环一表是每条消息的 CPU 微秒。对手取其较快的版本。",
    },
}


def main(paths: Sequence[str]) -> None:
    """Rewrite both READMEs."""
    documents = [json.loads(Path(path).read_text()) for path in paths]
    for name, words in WORDS.items():
        readme = ROOT / name
        text = readme.read_text(encoding="utf-8")
        section = "\n".join(tables(documents, words))
        changed, count = re.subn(
            r"(<!-- figures -->\n).*?(<!-- /figures -->)",
            lambda marks: f"{marks[1]}{section}\n{marks[2]}",  # noqa: B023
            text,
            flags=re.S,
        )
        if count != 1:
            sys.exit(f"readme_figures: {name} has no `figures` marks")
        readme.write_text(changed, encoding="utf-8")


def tables(documents: Sequence[Mapping[str, Any]], words: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the section."""
    scenarios = {each["name"]: each for document in documents for each in document["scenarios"]}
    document = documents[-1]
    rows = figures(scenarios["http-hello"]["cases"][0])
    yield from (words["http"], "", line(words["head"]), "|---|---:|---|---:|")
    for name, against in SERVERS.items():
        if name in rows:
            rate = f"{rows[name]['requests_per_second']['value']:,.0f}"
            yield line((f"`{name}`", f"{cpu(rows[name]):.1f}", ratio(rows, name, against), rate))
    cases = [figures(case) for case in scenarios["tcp-echo"]["cases"]]
    yield from ("", words["tcp"], "", line(words["loops"]), "|---|---|---|---|")
    for name, against in LOOPS.items():
        cells = [f"{cpu(case[name]):.1f} {ratio(case, name, against)}".rstrip() for case in cases]
        yield line((f"`{name}`", *cells))
    environment = document["environment"]
    machine = f"{environment['cpu']}, {environment['cores']} cores, Linux {environment['kernel']}"
    yield ""
    yield words["machine"].format(
        date=document["finished"][:10],
        machine=machine,
        python=f"CPython {environment['python']}",
        rounds=document["settings"]["rounds"],
    )


def figures(case: Mapping[str, Any]) -> dict[str, Any]:
    """Rows by contender; a rival of several builds by the one that needs the least CPU."""
    rows = {row["name"]: row for row in case["summary"]["rows"] if row["cpu_ns_per_request"]}
    for name, builds in BUILDS.items():
        there = [rows[build] for build in builds if build in rows]
        if there:
            rows[name] = min(there, key=cpu)
    return rows


def cpu(row: Mapping[str, Any]) -> float:
    """Microseconds."""
    value: float = row["cpu_ns_per_request"]["value"]
    return value / 1000


def ratio(rows: Mapping[str, Any], name: str, against: str) -> str:
    """How much of the other's CPU, in words for a table."""
    return f"**{cpu(rows[name]) / cpu(rows[against]):.2f}** `{against}`" if against in rows else ""


def line(cells: Any) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
