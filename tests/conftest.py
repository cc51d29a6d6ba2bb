"""What all tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

import pytest


@pytest.fixture(scope="session")
def missing() -> Callable[[str], NoReturn]:
    """A function that ends a test for want of a real part: a skip here, a failure in CI, which must have it."""

    def end(what: str) -> NoReturn:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{what} is missing, and CI must have it")
        pytest.skip(f"{what} is missing")

    return end


@pytest.fixture(scope="session")
def headrace() -> list[str]:
    """The words that start the command line of the package under test, on the interpreter of the tests."""
    return [sys.executable, "-m", "headrace"]
