"""Interpreters for contenders: the one that Headrace runs in, or environments of their own under a cache folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from headrace.bench.model import Contender, Environment, Package, Scenario
from headrace.cli import UsageError

#: Written last, so that an environment whose making was broken off is not taken for a whole one.
MARK = "headrace-bench.json"


def cache_folder() -> Path:
    """Where environments and compiled contenders are kept: ``$XDG_CACHE_HOME/headrace/bench``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "headrace" / "bench"


def folder_of(environment: Environment) -> Path:
    """The folder of an environment."""
    return cache_folder() / "environments" / environment.name


def python_of(environment: Environment | None) -> str:
    """The interpreter that a contender of this environment is started with."""
    return sys.executable if environment is None else str(folder_of(environment) / "bin" / "python")


def versions_in(environment: Environment) -> dict[str, str] | None:
    """The versions installed in an environment, or None when it has to be made (anew)."""
    try:
        mark = json.loads((folder_of(environment) / MARK).read_text())
    except (OSError, ValueError):
        return None
    if mark.get("packages") != list(environment.packages):
        return None
    versions: dict[str, str] = mark["versions"]
    return versions


def missing(contender: Contender, scenario: Scenario | None = None) -> str | None:
    """What has to be run before a contender can take part; None when all is there.

    :param scenario: asks for what this scenario's workload needs too.
    """
    wanted = [need for need in contender.needs if need.version() is None]
    if contender.environment is not None:
        wanted = [need for need in wanted if not isinstance(need, Package)]
        if versions_in(contender.environment) is None:
            return f"headrace bench setup {contender.environment.name}"
    elif scenario is not None:
        wanted += [need for need in scenario.needs if need.version() is None]
    if not wanted:
        return None
    packages = [need for need in wanted if isinstance(need, Package)]
    if packages:
        return "pip install " + " ".join(f"'{need.spec or need.name}'" for need in packages)
    return wanted[0].install


def version_of(contender: Contender) -> str:
    """The version of what a contender is named for: its first package."""
    for need in contender.needs:
        if isinstance(need, Package):
            if contender.environment is not None:
                return (versions_in(contender.environment) or {}).get(need.name.lower(), "")
            return need.version() or ""
    return ""


def interpreter(version: str) -> str | None:
    """An interpreter of a minor version such as ``3.11``: on ``PATH``, or among pyenv's."""
    if not version or sys.version.startswith(version + "."):
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is not None and _runs(found):
        return found
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for candidate in sorted(root.glob(f"versions/{version}*/bin/python"), reverse=True):
        if _runs(str(candidate)):
            return str(candidate)
    return None


def make(environment: Environment) -> None:
    """Make an environment and install its packages.

    :raises UsageError: when the interpreter is not there, or the installation fails.
    """
    python = interpreter(environment.python)
    if python is None:
        raise UsageError(
            f"{environment.name} needs Python {environment.python}: put python{environment.python} on PATH"
        )
    folder = folder_of(environment)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        _quietly([python, "-m", "venv", str(folder)])
        inside = python_of(environment)
        _quietly(
            [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *environment.packages]
        )
        listed = _quietly([inside, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"])
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip().splitlines()[-1:]
        raise UsageError(f"cannot make {environment.name}: {''.join(last) or error}") from None
    versions = {item["name"].lower(): item["version"] for item in json.loads(listed)}
    mark = {"packages": list(environment.packages), "versions": versions}
    (folder / MARK).write_text(json.dumps(mark))


def _runs(python: str) -> bool:
    """Whether an interpreter starts: a shim of a version manager may be there without the version."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def _quietly(words: list[str]) -> str:
    """Run a command and give what it printed."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
