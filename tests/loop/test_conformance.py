"""CPython's own asyncio tests pass on this loop. See ``conformance.py``, which can be run by itself."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

import pytest

SCRIPT = Path(__file__).with_name("conformance.py")

#: How many tests there are at least, of 3.11 to 3.14: a list that shrinks must not pass unseen.
AT_LEAST = {"mixins": 100, "modules": 400}


def outcomes(group: str, loop: str = "headrace") -> dict[str, tuple[str, str]]:
    command = [sys.executable, str(SCRIPT), "--group", group, "--loop", loop]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert lines, result.stderr
    return {line["test"]: (line["outcome"], line["detail"]) for line in lines}


def report(failures: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"{name}:\n{detail}" for name, detail in failures)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", ["mixins", "modules"])
def test_cpythons_own_tests_pass(group: str, missing: Callable[[str], NoReturn]) -> None:
    if importlib.util.find_spec("test") is None or importlib.util.find_spec("test.test_asyncio") is None:
        missing("the interpreter's package test.test_asyncio (Debian: libpython3.X-testsuite)")
    results = outcomes(group)
    failures = [(name, detail) for name, (outcome, detail) in results.items() if outcome == "failed"]
    assert not failures, report(failures)
    passed = sum(outcome == "passed" for outcome, _ in results.values())
    assert passed >= AT_LEAST[group]
