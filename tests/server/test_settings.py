"""Where settings come from: an option wins, then a variable, then the file, then the default."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

import pytest
from headrace.cli import UsageError
from headrace.server import command
from headrace.server.options import OPTIONS
from headrace.server.settings import Setting, config_of, resolve

#: What another value than the default looks like, by the kind of the option.
OTHER = {
    "interface": "wsgi",
    "concurrency": "threads",
    "access-log-format": "json",
    "reload-dir": "/",
    "bind": "127.0.0.1:9",
    "application": "other:app",
    "workers": "3",
}


def other_text(option) -> str:
    if option.flag:
        return "on"
    if option.name in OTHER:
        return OTHER[option.name]
    if option.numeric:
        return "7"
    return "words"


def settled(*words: str, folder: Path, **variables: str) -> dict[str, Setting]:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return resolve(parser.parse_args(words), variables, folder)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_has_a_variable_and_a_key(option, tmp_path: Path) -> None:
    text = other_text(option)
    words = ["--" + option.name] if option.flag else ["--" + option.name, text]
    if option.name == "application":
        words = [text]
    else:
        tmp_path.joinpath("headrace.toml").write_text('application = "main:app"\n')
    by_word = settled(*words, folder=tmp_path)[option.name]
    by_variable = settled(folder=tmp_path, **{option.variable: text})[option.name]
    with tmp_path.joinpath("headrace.toml").open("a") as file:
        file.write(f"{option.name} = " + ("true" if option.flag else text if option.numeric else f'"{text}"'))
    by_key = settled(folder=tmp_path)[option.name]
    assert by_word.value == by_variable.value == by_key.value != option.default
    assert by_variable.source == option.variable
    assert by_key.source == "headrace.toml"
    assert type(by_word.value) is type(by_key.value) is type(by_variable.value)


def test_every_word_of_the_command_line_is_an_option_of_the_table() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    command.configure(parser)
    # What is about the command itself, and not about the server.
    own = {"config", "check"}
    assert {action.dest for action in parser._actions} - own == {option.field for option in OPTIONS}


def test_the_option_wins_then_the_variable_then_the_platform_then_the_file(tmp_path: Path) -> None:
    tmp_path.joinpath("headrace.toml").write_text('application = "a:b"\nworkers = 2\nbind = [":1", ":2"]\n')
    settings = settled(folder=tmp_path)
    assert settings["workers"] == Setting(2, "headrace.toml")
    assert settings["bind"] == Setting((":1", ":2"), "headrace.toml")
    settings = settled(folder=tmp_path, WEB_CONCURRENCY="3", PORT="81")
    assert settings["workers"] == Setting(3, "WEB_CONCURRENCY")
    assert settings["bind"] == Setting(("0.0.0.0:81",), "PORT")
    more = {"HEADRACE_WORKERS": "4", "HEADRACE_BIND": ":3, unix:/x"}
    settings = settled(folder=tmp_path, WEB_CONCURRENCY="3", PORT="81", **more)
    assert settings["workers"] == Setting(4, "HEADRACE_WORKERS")
    assert settings["bind"] == Setting((":3", "unix:/x"), "HEADRACE_BIND")
    settings = settled("--workers", "5", "--bind", ":4", folder=tmp_path, **more)
    assert settings["workers"] == Setting(5, "--workers")
    assert settings["bind"] == Setting((":4",), "--bind")


def test_a_flag_can_be_taken_back(tmp_path: Path) -> None:
    assert settled("a:b", folder=tmp_path, HEADRACE_FACTORY="1")["factory"].value is True
    assert settled("a:b", "--no-factory", folder=tmp_path, HEADRACE_FACTORY="1")["factory"].value is False


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    settings = settled("a:b", folder=tmp_path, HEADRACE_WORKERS="", PORT="", HEADRACE_CONFIG="")
    assert settings["workers"].source == settings["bind"].source == "default"


def test_files_are_looked_for_in_order(tmp_path: Path) -> None:
    tmp_path.joinpath("pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert settled("a:b", folder=tmp_path)["grace"].source == "default"
    tmp_path.joinpath("pyproject.toml").write_text("[tool.headrace]\ngrace = 2.5\n")
    assert settled("a:b", folder=tmp_path)["grace"] == Setting(2.5, "pyproject.toml")
    tmp_path.joinpath("headrace.toml").write_text("grace = 3\n")
    assert settled("a:b", folder=tmp_path)["grace"] == Setting(3.0, "headrace.toml")
    named = tmp_path / "production.toml"
    named.write_text("grace = 4\nfactory = true\n")
    assert settled("a:b", "--config", str(named), folder=tmp_path)["grace"] == Setting(4.0, str(named))
    settings = settled("a:b", folder=tmp_path, HEADRACE_CONFIG=str(named))
    assert settings["grace"] == Setting(4.0, str(named))
    assert config_of(settings).factory is True


@pytest.mark.parametrize(
    "variables, said",
    [
        ({"HEADRACE_WORKERS": "many"}, ["HEADRACE_WORKERS=many", "whole number above 0, or 'auto'"]),
        ({"HEADRACE_WORKER": "2"}, ["HEADRACE_WORKER", "did you mean HEADRACE_WORKERS"]),
        ({"HEADRACE_HEAD_TIMEOUT": "-1"}, ["HEADRACE_HEAD_TIMEOUT=-1", "above 0"]),
        ({"HEADRACE_FACTORY": "perhaps"}, ["HEADRACE_FACTORY=perhaps", "true"]),
        ({"HEADRACE_BIND": ":1,nowhere"}, ["HEADRACE_BIND", "HOST:PORT"]),
        ({"PORT": "http"}, ["PORT=http"]),
        ({"PORT": "70000"}, ["PORT=70000"]),
        ({"WEB_CONCURRENCY": "0"}, ["WEB_CONCURRENCY=0"]),
        ({"HEADRACE_CONFIG": "/nowhere.toml"}, ["/nowhere.toml", "cannot be read"]),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variables: dict[str, str], said: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        settled("a:b", folder=tmp_path, **variables)
    assert all(part in str(caught.value) for part in said), caught.value
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, said",
    [
        ("worker = 2", ["headrace.toml", "'worker'", "did you mean 'workers'"]),
        ("head_timeout = 2", ["did you mean 'head-timeout'"]),
        ("zzz = 2", ["there is no setting 'zzz'"]),
        ("workers = 2.5", ["workers = 2.5", "whole number"]),
        ("workers = true", ["workers = true", "number"]),
        ("workers = [2]", ["number"]),
        ("head-size = nan", ["head-size = nan", "above 0"]),
        ("head-timeout = inf", ["head-timeout = inf", "above 0"]),
        ("factory = 1", ["factory = 1", "true or false"]),
        ("bind = 8000", ["bind", "string"]),
        ("bind = ['nowhere']", ["bind", "HOST:PORT"]),
        ("interface = 'cgi'", ['interface = "cgi"', "asgi"]),
        ("application = 3", ["application = 3", "string"]),
        ("workers =", ["is not TOML"]),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, text: str, said: list[str]) -> None:
    tmp_path.joinpath("headrace.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        settled("a:b", folder=tmp_path)
    assert all(part in str(caught.value) for part in said), caught.value
    assert "\n" not in str(caught.value)


def test_variables_that_platforms_set_by_themselves_are_let_pass(tmp_path: Path) -> None:
    settled(
        "a:b",
        folder=tmp_path,
        HEADRACE_SERVICE_HOST="10.0.0.1",
        HEADRACE_SERVICE_PORT="80",
        HEADRACE_PORT="tcp://10.0.0.1:80",
        HEADRACE_PORT_80_TCP_ADDR="10.0.0.1",
        HEADRACE_BENCH_REDIS="redis://x",
    )


def test_no_application_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no application"):
        settled(folder=tmp_path)


def test_check_says_what_is_set_and_by_whom(headrace: list[str], tmp_path: Path) -> None:
    tmp_path.joinpath("good.py").write_text("async def app(scope, receive, send): ...\n")
    tmp_path.joinpath("headrace.toml").write_text('application = "good:app"\ngrace = 3\n')
    done = subprocess.run(
        [*headrace, "serve", "--check", "--bind", "127.0.0.1:0"],
        cwd=tmp_path,
        env={**os.environ, "HEADRACE_WORKERS": "2"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    assert lines[0] == "headrace: good:app loads (asgi), and its addresses are free"
    assert [line.split(maxsplit=1) for line in lines[1:]] == [
        ["application", "good:app     from headrace.toml"],
        ["bind", "127.0.0.1:0  from --bind"],
        ["workers", "2            from HEADRACE_WORKERS"],
        ["grace", "3            from headrace.toml"],
    ]


@pytest.mark.parametrize(
    "words, said",
    [
        (["--workers", "x"], "--workers x: must be a whole number above 0, or 'auto'"),
        (["--worker", "2"], "there is no option --worker; did you mean --workers?"),
        (["--interface", "cgi"], "--interface cgi: must be auto, asgi, wsgi or tornado"),
    ],
)
def test_a_wrong_option_is_one_line(headrace: list[str], tmp_path: Path, words: list[str], said: str) -> None:
    done = subprocess.run(
        [*headrace, "serve", "a:b", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == f"headrace: {said}\n"
