"""The command line itself: what holds for every subcommand."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from headrace import cli


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_version_names_profile_commit_and_interpreter() -> None:
    done = run("--version")
    assert done.returncode == 0
    build = r"(release|quick|debug) build of ([0-9a-f]{10}\+?|unknown), rustc .+, cpython .+"
    pattern = rf"headrace \d+\.\d+\.\d+ \({build}\)\n"
    assert re.fullmatch(pattern, done.stdout), done.stdout


def test_no_command_prints_the_help_and_fails() -> None:
    done = run()
    assert done.returncode == 2
    for name in cli.COMMANDS:
        assert name in done.stdout


def test_help_needs_no_part_of_the_package() -> None:
    """`headrace --help` lists every command without importing one."""
    code = (
        "import sys; from headrace import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "loaded = [m for m, _ in cli.COMMANDS.values() if m in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout


def test_unknown_command_is_one_line_of_usage() -> None:
    done = run("no-such-command")
    assert done.returncode == 2
    assert "no-such-command" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def a_command(monkeypatch: pytest.MonkeyPatch):
    """Put a command of the test's own in the place of all others."""

    def place(run) -> None:
        module = type(sys)("headrace_test_command")
        module.configure = lambda parser: None
        module.run = run
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(cli, "COMMANDS", {"go": (module.__name__, "a command of the tests")})

    return place


def test_a_usage_error_is_one_line_and_status_2(a_command, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(args):
        raise cli.UsageError("the port is taken")

    a_command(refuse)
    assert cli.main(["go"]) == 2
    assert capsys.readouterr().err == "headrace: the port is taken\n"


def test_the_status_of_a_command_is_the_status_of_the_process(a_command) -> None:
    a_command(lambda args: 7)
    assert cli.main(["go"]) == 7


def test_interruption_is_status_130(a_command) -> None:
    def interrupted(args):
        raise KeyboardInterrupt

    a_command(interrupted)
    assert cli.main(["go"]) == 130
