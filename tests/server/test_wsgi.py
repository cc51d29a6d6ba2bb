"""What WSGI applications may rely on beside PEP 3333's letter."""

from __future__ import annotations

import json
from pathlib import Path

APPLICATION = """
import asyncio, json

def app(environ, start_response):
    def in_a_loop_of_its_own():
        async def answer():
            await asyncio.sleep(0)
            return "done"
        return asyncio.run(answer())

    try:
        asyncio.get_running_loop()
        running = True
    except RuntimeError:
        running = False
    found = {"running": running, "own": in_a_loop_of_its_own(), "cookie": environ.get("HTTP_COOKIE"),
             "path": environ["PATH_INFO"], "query": environ["QUERY_STRING"], "forged": environ.get("HTTP_X_A")}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(found).encode()]
"""


def test_the_application_runs_outside_any_loop(serve, tmp_path: Path) -> None:
    """Django's ORM refuses to work where a loop is running; so does asyncio.run()."""
    tmp_path.joinpath("plain.py").write_text(APPLICATION)
    with serve("plain:app", tmp_path) as served:
        for _ in range(2):
            status, _, body = served.ask("GET", "/a%20b?c=d", headers={"X_A": "forged"})
            assert status == 200
            assert json.loads(body) == {
                "running": False,
                "own": "done",
                "cookie": None,
                "path": "/a b",
                "query": "c=d",
                "forged": None,
            }
        assert served.stop() == 0
        assert "Traceback" not in served.log
