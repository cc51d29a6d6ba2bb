"""What all tests share."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parent.parent


def missing(what: str) -> NoReturn:
    """Skip a test for want of a real part; in CI, where every part must be there, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def headrace() -> list[str]:
    """The words that start the command line of the package under test, on the interpreter of the tests."""
    return [sys.executable, "-m", "headrace"]


@pytest.fixture(scope="session")
def program():
    """A function that finds a program on PATH, or skips the test (fails it in CI)."""

    def find(name: str) -> str:
        return shutil.which(name) or missing(name)

    return find
