"""The tools behind the Makefile: what they choose, what they say is missing, what they do not do twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.once


def write_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(script)}")
    path.chmod(0o755)
    return path


@pytest.fixture
def path_folder(tmp_path: Path) -> Path:
    """A folder to be the whole PATH: with what a bare system has, and what a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "cut", "dirname", "env", "head", "ls", "sed", "sh", "sort"):
        found = shutil.which(name)
        assert found, name
        folder.joinpath(name).symlink_to(found)
    return folder


def run(tool: str, path_folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "tools" / tool, *words],
        env={"PATH": str(path_folder), "HOME": str(path_folder), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a tool that cannot go on."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("headrace: "), done.stderr
    return done.stderr


# --- find_python.sh -------------------------------------------------------------------------------


def fake_python(folder: Path, name: str, says: str) -> Path:
    """An interpreter that answers the tool's question with `says`."""
    return write_program(folder / name, f'echo "{says} {folder / name}"\n')


def test_a_real_interpreter_is_found_behind_an_environment(path_folder: Path) -> None:
    version = "{}.{}".format(*sys.version_info[:2])
    path_folder.joinpath(f"python{version}").symlink_to(sys.executable)
    done = run("find_python.sh", path_folder)
    assert done.returncode == 0, done.stderr
    said = subprocess.run(
        [done.stdout.strip(), "-c", "import sys; print(sys.version)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == sys.version
    listed = run("find_python.sh", path_folder, "--all")
    assert listed.stdout == f"{version} {done.stdout}"


def test_the_order_is_313_312_311_314(path_folder: Path) -> None:
    for version in ("3.14", "3.11", "3.12", "3.13"):
        fake_python(path_folder, f"python{version}", f"{version} venv")
    found = []
    while (done := run("find_python.sh", path_folder)).returncode == 0:
        found.append(Path(done.stdout.strip()).name)
        path_folder.joinpath(found[-1]).unlink()
    assert found == ["python3.13", "python3.12", "python3.11", "python3.14"]


def test_a_shim_that_fails_is_passed_over(path_folder: Path) -> None:
    write_program(path_folder / "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    fake_python(path_folder, "python3.12", "3.12 venv")
    assert run("find_python.sh", path_folder).stdout.strip().endswith("python3.12")


def test_the_versions_of_pyenv_are_looked_at(path_folder: Path, tmp_path: Path) -> None:
    write_program(path_folder / "pyenv", f'echo "{tmp_path}/pyenv"\n')
    fake_python(tmp_path / "pyenv" / "versions" / "3.13.0" / "bin", "python", "3.13 venv")
    fake_python(path_folder, "python3.12", "3.12 venv")
    assert run("find_python.sh", path_folder).stdout.strip().endswith("versions/3.13.0/bin/python")


def test_plain_python3_will_do(path_folder: Path) -> None:
    fake_python(path_folder, "python3", "3.11 venv")
    assert run("find_python.sh", path_folder).stdout.strip().endswith("python3")
    assert run("find_python.sh", path_folder, "--all").stdout.startswith("3.11 ")


def test_no_python(path_folder: Path) -> None:
    assert "no CPython 3.11 to 3.14 was found: install one" in refusal(run("find_python.sh", path_folder))


def test_only_an_old_python(path_folder: Path) -> None:
    fake_python(path_folder, "python3", "3.9 venv")
    assert "no CPython 3.11 to 3.14 was found" in refusal(run("find_python.sh", path_folder))


def test_a_python_without_venv(path_folder: Path) -> None:
    fake_python(path_folder, "python3.13", "3.13 bare")
    line = refusal(run("find_python.sh", path_folder))
    assert "python3.13 has no venv module" in line and "apt install python3-venv" in line
    fake_python(path_folder, "python3.11", "3.11 venv")
    assert run("find_python.sh", path_folder).stdout.strip().endswith("python3.11")


def test_the_one_that_the_user_names(path_folder: Path) -> None:
    fake_python(path_folder, "python3.13", "3.13 venv")
    mine = fake_python(path_folder.parent / "mine", "py", "3.12 venv")
    assert run("find_python.sh", path_folder, PYTHON=str(mine)).stdout == f"{mine}\n"


@pytest.mark.parametrize(
    ("says", "line"), [("3.10 venv", "is 3.10; supported are"), ("3.12 bare", "has no venv module")]
)
def test_one_that_the_user_names_and_that_will_not_do(path_folder: Path, says: str, line: str) -> None:
    mine = fake_python(path_folder, "mine", says)
    assert line in refusal(run("find_python.sh", path_folder, PYTHON=str(mine)))


def test_one_that_the_user_names_and_that_is_not_there(path_folder: Path) -> None:
    fake_python(path_folder, "python3.13", "3.13 venv")
    line = refusal(run("find_python.sh", path_folder, PYTHON="/nowhere/python"))
    assert "PYTHON=/nowhere/python does not run" in line


# --- toolchain.sh ---------------------------------------------------------------------------------


@pytest.fixture
def rust(path_folder: Path) -> Path:
    """A PATH with a new enough Rust toolchain and a C compiler."""
    write_program(path_folder / "rustc", "echo 'rustc 1.99.0 (abc 2026-01-01)'")
    write_program(path_folder / "cargo", '[ "$1" != clippy ]')
    write_program(path_folder / "cc", "exit 0")
    return path_folder


def test_a_whole_toolchain(rust: Path) -> None:
    done = run("toolchain.sh", rust, "fmt")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("lacking", "line"),
    [
        ("cargo", "no Rust toolchain (cargo) was found: install Rust 1.88 or newer"),
        ("rustc", "no Rust toolchain (cargo) was found: install Rust 1.88 or newer"),
        ("cc", "no C compiler (cc) was found"),
    ],
)
def test_a_part_of_the_toolchain_is_missing(rust: Path, lacking: str, line: str) -> None:
    rust.joinpath(lacking).unlink()
    assert line in refusal(run("toolchain.sh", rust))


@pytest.mark.parametrize("version", ["1.63.0", "1.87.0", "1.9.0", "1.87.0-nightly"])
def test_rust_is_too_old(rust: Path, version: str) -> None:
    write_program(rust / "rustc", f"echo 'rustc {version} (abc 2026-01-01)'")
    assert f"Rust {version} is too old: install 1.88 or newer" in refusal(run("toolchain.sh", rust))


@pytest.mark.parametrize("version", ["1.88.0", "1.100.0", "2.0.0", "1.96.0-nightly"])
def test_rust_is_new_enough(rust: Path, version: str) -> None:
    write_program(rust / "rustc", f"echo 'rustc {version} (abc 2026-01-01)'")
    assert run("toolchain.sh", rust).returncode == 0


def test_rustup_without_a_toolchain(rust: Path) -> None:
    write_program(rust / "rustc", "echo 'error: no default toolchain' >&2; exit 1")
    done = run("toolchain.sh", rust)
    assert done.returncode == 2
    assert "rustup default stable" in done.stderr.splitlines()[-1]


def test_a_component_is_missing(rust: Path) -> None:
    assert "cargo clippy is missing" in refusal(run("toolchain.sh", rust, "fmt", "clippy"))


# --- environment.py -------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A tree with what environment.py reads, and a maturin that writes down each build."""
    tree = tmp_path / "tree"
    for name in (
        "crates/native/src/lib.rs",
        "Cargo.toml",
        "Cargo.lock",
        "pyproject.toml",
        "requirements/build.txt",
    ):
        tree.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        tree.joinpath(name).write_text("")
    tree.joinpath("python", "headrace").mkdir(parents=True)
    shutil.copytree(ROOT / "tools", tree / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    write_program(tree / "tools" / "toolchain.sh", "exit 0")
    return tree


def prepare(tree: Path, *, profile: str = "quick", status: int = 0) -> list[str]:
    """Run environment.py; the first words of the lines that say what it did."""
    words = [".venv", "--requirements", "requirements/build.txt", "--profile", profile]
    done = subprocess.run(
        [sys._base_executable, "tools/environment.py", *words],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("==> ")]


MATURIN = """
suffix=$("$VIRTUAL_ENV/bin/python" -c "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))")
echo "$@" >"python/headrace/_native$suffix"
"""


def test_nothing_is_done_twice(checkout: Path) -> None:
    """One test for the whole story: a virtual environment takes seconds to make."""
    # The lock file of this tree is empty, so maturin is missing until the test puts one there.
    assert prepare(checkout, status=2) == ["making", "installing", "building"]
    write_program(checkout / ".venv" / "bin" / "maturin", MATURIN)
    assert prepare(checkout) == ["building"]
    assert prepare(checkout) == []

    source = checkout / "crates" / "native" / "src" / "lib.rs"
    os.utime(source)
    assert prepare(checkout) == [], "a newer time is no change"
    source.write_text("// changed")
    assert prepare(checkout) == ["building"]
    source.rename(source.with_name("other.rs"))
    assert prepare(checkout) == ["building"]
    assert prepare(checkout, profile="release") == ["building"]
    assert prepare(checkout, profile="release") == []

    extension = next(checkout.joinpath("python", "headrace").glob("_native*"))
    extension.write_text("built by hand")
    assert prepare(checkout, profile="release") == ["building"], "somebody else built over it"
    extension.unlink()
    assert prepare(checkout, profile="release") == ["building"]

    checkout.joinpath("requirements", "build.txt").write_text("# another lock file\n")
    assert prepare(checkout, profile="release") == ["installing"]
    assert prepare(checkout, profile="release") == []

    # What it was made from is gone: it is made anew, and all that was in it.
    checkout.joinpath(".venv", "bin", "python").unlink()
    assert prepare(checkout, profile="release", status=2) == ["making", "installing", "building"]
    assert checkout.joinpath(".venv", "bin", "python").is_file()
