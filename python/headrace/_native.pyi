"""Stubs of the extension, written by hand and held to it by ``mypy.stubtest``."""

from collections.abc import Sequence
from typing import Any, Self, final

def build_info() -> dict[str, str]: ...

@final
class LoadRun:
    """A run of the load generator; it begins when it is made. ``ValueError``: one line about what cannot be."""

    def __new__(
        cls,
        url: str,
        *,
        connections: int = 64,
        threads: int = 1,
        duration: float = 10.0,
        warmup: float = 0.0,
        rate: float | None = None,
        poisson: bool = False,
        pipeline: int = 1,
        timeout: float = 10.0,
        pid: int | None = None,
        seed: int = 1,
        method: str = "GET",
        headers: Sequence[str] = ...,
        body: bytes | None = None,
        body_size: int | None = None,
        expect_status: int | None = None,
        expect_body_length: int | None = None,
        expect_body: bytes | None = None,
        any_length: bool = False,
    ) -> Self: ...
    def wait(self, seconds: float) -> bool: ...
    def stop(self) -> None: ...
    def snapshot(self) -> tuple[int, int, int, float | None]: ...
    def report(self) -> dict[str, Any]: ...
