"""What the server is told, and by whom: an option wins, then a variable, then the file, then the default."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headrace.cli import UsageError
from headrace.server.config import Config, Limits
from headrace.server.options import OPTIONS, Option, on_or_off

#: Files that are looked for in the current folder, the first one wins.
FILES = ("headrace.toml", "pyproject.toml")

#: The variable that names another file.
FILE_VARIABLE = "HEADRACE_CONFIG"

#: Variables of hosting platforms, weaker than ours: the option each stands for, and how its text is to be read.
PLATFORM_VARIABLES = {"PORT": "bind", "WEB_CONCURRENCY": "workers"}

#: How alike a variable must be to one of ours to be taken for a slip of the pen. Others are let pass: container
#: platforms put names like HEADRACE_SERVICE_HOST there by themselves.
LIKENESS = 0.85


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """A value, and where it came from."""

    value: Any
    #: As in "--workers", "HEADRACE_WORKERS", "headrace.toml"; "default" when nobody said anything.
    source: str


def resolve(args: argparse.Namespace, environ: Mapping[str, str], folder: Path) -> dict[str, Setting]:
    """The value of every option, by the option's name.

    :param args: texts by the options' fields, as the command line gave them; None where it did not. ``config`` is the
        name of the file.
    :param environ: the variables.
    :param folder: where the file is looked for when none is named.
    :raises UsageError: for a value that is none, or a key that is unknown.
    """
    _refuse_slips(environ)
    settings = {option.name: Setting(option.default, "default") for option in OPTIONS}
    settings.update(_from_file(args.config or environ.get(FILE_VARIABLE) or None, folder))
    settings.update(_from_platform(environ))
    for option in OPTIONS:
        if text := environ.get(option.variable):
            settings[option.name] = Setting(_from_text(option, text), option.variable)
        given = getattr(args, option.field)
        if given is not None:
            source = "--" + option.name if option.name != "application" else "the command line"
            settings[option.name] = Setting(_from_words(option, given, source), source)
    if settings["application"].source == "default":
        raise UsageError(
            "no application: name it as in 'headrace serve main:app', in HEADRACE_APPLICATION, or in headrace.toml"
        )
    return settings


def config_of(settings: Mapping[str, Setting]) -> Config:
    """The configuration that the settings make."""
    values = {option.field: settings[option.name].value for option in OPTIONS}
    limits = {field.name: values.pop(field.name) for field in dataclasses.fields(Limits)}
    return Config(**values, limits=Limits(**limits))


def report(settings: Mapping[str, Setting]) -> list[str]:
    """A line for each setting that somebody made: what it is, and where it came from."""
    rows = [(name, _shown(setting.value), setting.source) for name, setting in settings.items()]
    rows = [row for row in rows if row[2] != "default"]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    return [f"{name:<{widths[0]}}  {value:<{widths[1]}}  from {source}" for name, value, source in rows]


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(each) for each in value)
    if isinstance(value, float):
        return f"{value:g}"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


# Sources


def _from_words(option: Option, given: Any, source: str) -> Any:
    if option.flag:
        return given
    texts = given if option.many else [given]
    values = tuple(_parse(option, text, f"{source} {text}") for text in texts)
    return values if option.many else values[0]


def _from_text(option: Option, text: str) -> Any:
    what = f"{option.variable}={text}"
    if option.flag:
        try:
            return on_or_off(text)
        except ValueError as error:
            raise UsageError(f"{what}: {error}") from None
    if option.many:
        return tuple(_parse(option, each.strip(), what) for each in text.split(",") if each.strip())
    return _parse(option, text, what)


def _parse(option: Option, text: str, what: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        raise UsageError(f"{what}: {error}") from None


def _from_platform(environ: Mapping[str, str]) -> dict[str, Setting]:
    options = {option.name: option for option in OPTIONS}
    found = {}
    for variable, name in PLATFORM_VARIABLES.items():
        if not (text := environ.get(variable)):
            continue
        what = f"{variable}={text}"
        if name == "bind":
            if not text.isascii() or not text.isdigit():
                raise UsageError(f"{what}: must be a port's number")
            # Who sets it routes to us from outside.
            found[name] = Setting((_parse(options[name], f"0.0.0.0:{text}", what),), variable)
        else:
            found[name] = Setting(_parse(options[name], text, what), variable)
    return found


def _refuse_slips(environ: Mapping[str, str]) -> None:
    known = {FILE_VARIABLE, *(option.variable for option in OPTIONS)}
    for variable in environ:
        if variable.startswith("HEADRACE_") and variable not in known:
            meant = difflib.get_close_matches(variable, known, 1, LIKENESS)
            if meant:
                raise UsageError(f"{variable}: there is no such variable; did you mean {meant[0]}?")


def _from_file(name: str | None, folder: Path) -> dict[str, Setting]:
    if name is not None:
        table = _table(Path(name), name)
        if table is None:
            raise UsageError(f"{name}: it has no table [tool.headrace]")
        return _from_table(table, name)
    for candidate in FILES:
        path = folder / candidate
        if path.is_file() and (table := _table(path, candidate)) is not None:
            return _from_table(table, candidate)
    return {}


def _table(path: Path, shown: str) -> dict[str, Any] | None:
    """The settings of a file; None for a pyproject.toml that has none."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{shown}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{shown}: is not TOML: {error}") from error
    if path.name != "pyproject.toml":
        return document
    table = document.get("tool", {}).get("headrace")
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{shown}: tool.headrace must be a table")
    return table


def _from_table(table: Mapping[str, Any], shown: str) -> dict[str, Setting]:
    options = {option.name: option for option in OPTIONS}
    found = {}
    for key, value in table.items():
        if key not in options:
            raise UsageError(f"{shown}: there is no setting {key!r}{did_you_mean(key, options)}")
        found[key] = Setting(_from_toml(options[key], value, f"{shown}: {key} = {_toml(value)}"), shown)
    return found


def _from_toml(option: Option, value: Any, what: str) -> Any:
    if option.flag:
        if not isinstance(value, bool):
            raise UsageError(f"{what}: must be true or false")
        return value
    if option.many:
        texts = value if isinstance(value, list) else [value]
        return tuple(_from_toml(dataclasses.replace(option, many=False), text, what) for text in texts)
    if isinstance(value, bool) or not isinstance(value, (str, int, float) if option.numeric else str):
        raise UsageError(f"{what}: must be a {'number' if option.numeric else 'string'}")
    return _parse(option, str(value), what)


def _toml(value: Any) -> str:
    """A value as the file has it, near enough to be recognised."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).replace("'", '"')


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about a word that is unknown: the nearest one that is known."""
    nearest = difflib.get_close_matches(word.replace("_", "-").lower(), list(known), 1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
