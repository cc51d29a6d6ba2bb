"""Starts the services that scenarios need, once for a whole run, and says what is missing for the others."""

from __future__ import annotations

import os
from collections.abc import Iterable

from headrace.bench import registry
from headrace.bench.model import Service
from headrace.bench.process import Processes, StartFailure
from headrace.bench.rounds import Progress


class Missing(Exception):
    """A service cannot be had; the text says what to do."""


def lacking(service: Service) -> str | None:
    """What has to be run before a service can be started; None when all is there."""
    if os.environ.get(service.variable):
        return None
    return next((need.install for need in service.needs if need.find() is None), None)


class Provision:
    """Services by name, started when first asked for.

    :param processes: what starts and stops them.
    :param progress: told what goes on.
    """

    def __init__(self, processes: Processes, progress: Progress) -> None:
        self._processes = processes
        self._progress = progress
        self._urls: dict[str, str] = {}
        self._failed: dict[str, str] = {}

    def urls(self, names: Iterable[str]) -> dict[str, str]:
        """The URLs of services, all of them running.

        :raises Missing: when one of them cannot be had.
        """
        return {name: self._url(name) for name in names}

    def _url(self, name: str) -> str:
        """The URL of one service."""
        if name in self._failed:
            raise Missing(self._failed[name])
        if name not in self._urls:
            service = registry.services()[name]
            own = os.environ.get(service.variable)
            try:
                self._urls[name] = own or self._start(service)
            except Missing as error:
                self._failed[name] = str(error)
                raise
        return self._urls[name]

    def _start(self, service: Service) -> str:
        """Start a service."""
        command = lacking(service)
        if command is not None:
            raise Missing(f"needs {service.name}: {command}, or set {service.variable} to the URL of one")
        self._progress(f"starting {service.name}")
        try:
            return service.start(self._processes, self._processes.folder(service.name))
        except (StartFailure, OSError) as error:
            log = getattr(error, "log", "").strip().splitlines()[-1:]
            raise Missing(f"{service.name} did not start: {error} {''.join(log)}".strip()) from None
