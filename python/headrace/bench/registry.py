"""Finds scenarios, contenders and services by scanning their packages: there is no list to keep."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from types import ModuleType
from typing import TypeVar

from headrace.bench import contenders as contender_package
from headrace.bench import scenarios as scenario_package
from headrace.bench import services as service_package
from headrace.bench.model import Contender, Scenario, Service
from headrace.cli import UsageError

T = TypeVar("T", Scenario, Contender, Service)


@cache
def scenarios() -> dict[str, Scenario]:
    """All scenarios, by name."""
    return _scan(scenario_package, Scenario)


@cache
def contenders() -> dict[str, Contender]:
    """All contenders, by name."""
    return _scan(contender_package, Contender)


@cache
def services() -> dict[str, Service]:
    """All services, by name."""
    return _scan(service_package, Service)


def hosts_of(scenario: Scenario) -> list[Contender]:
    """The contenders that can host a scenario, in the order of their names."""
    return [c for c in contenders().values() if scenario.interface_of(c) is not None]


def choose(names: Iterable[str], known: Mapping[str, T], kind: str) -> list[T]:
    """The things that a user named.

    :param names: what the user wrote.
    :param known: what there is.
    :param kind: what such a thing is called in a message.
    :raises UsageError: for a name that is unknown, with the nearest ones.
    """
    chosen = []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(sorted(known))}"
            raise UsageError(f"no {kind} {name!r}; {hint}")
        if known[name] not in chosen:
            chosen.append(known[name])
    return chosen


def _scan(package: ModuleType, kind: type[T]) -> dict[str, T]:
    """The objects of one kind that the modules of a package declare, in the order of their names."""
    found: dict[str, T] = {}
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        module = importlib.import_module(info.name)
        for value in vars(module).values():
            for item in value if isinstance(value, (list, tuple)) else (value,):
                if not isinstance(item, kind):
                    continue
                if found.setdefault(item.name, item) is not item:
                    raise RuntimeError(f"two {kind.__name__.lower()}s are called {item.name!r}")
    return dict(sorted(found.items()))
