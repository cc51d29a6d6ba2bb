"""The house: its arrows, its lock files, its two READMEs."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.once


def load_tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


arrows = load_tool("check_arrows")


# --- Arrows between crates ------------------------------------------------------------------------


def make_workspace(folder: Path, crates: dict[str, str], sources: dict[str, str] | None = None) -> dict:
    """A workspace of empty crates, each with its manifest's dependency lines, as cargo sees it."""
    folder.joinpath("Cargo.toml").write_text('[workspace]\nresolver = "3"\nmembers = ["crates/*"]\n')
    for name, dependencies in crates.items():
        source = folder / "crates" / name / "src" / "lib.rs"
        source.parent.mkdir(parents=True)
        source.write_text((sources or {}).get(name, "#![no_std]\n"))
        manifest = f'[package]\nname = "{name}"\nversion = "1.0.0"\nedition = "2024"\n{dependencies}'
        folder.joinpath("crates", name, "Cargo.toml").write_text(manifest)
    subprocess.run(["cargo", "generate-lockfile", "--offline"], cwd=folder, check=True, capture_output=True)
    return arrows.cargo_metadata(folder)


def depends(*names: str, table: str = "dependencies") -> str:
    return f"[{table}]\n" + "".join(f'{name} = {{ path = "../{name}" }}\n' for name in names)


ALLOWED = {
    "httparse": "",
    "socket2": "",
    "pyo3": "",
    "headrace-http1": depends("httparse"),
    "headrace-websocket": "",
    "headrace-engine": depends("socket2"),
    "headrace-server": depends("headrace-http1", "headrace-websocket", "headrace-engine"),
    "headrace-load": depends("headrace-http1", "headrace-engine"),
    "headrace-native": depends("pyo3", "headrace-server", "headrace-load"),
}


def test_the_crates_arrows_of_the_design_are_allowed(tmp_path: Path) -> None:
    assert list(arrows.crate_violations(make_workspace(tmp_path, ALLOWED))) == []


@pytest.mark.parametrize(
    ("crate", "dependencies", "said"),
    [
        ("headrace-http1", depends("headrace-engine"), "headrace-http1 -> headrace-engine"),
        ("headrace-http1", depends("socket2"), "headrace-http1 -> socket2"),
        ("headrace-websocket", depends("pyo3"), "headrace-websocket -> pyo3"),
        ("httparse", depends("socket2"), "headrace-http1 -> httparse -> socket2"),
        ("headrace-engine", depends("headrace-http1"), "headrace-engine -> headrace-http1"),
        ("headrace-engine", depends("pyo3"), "headrace-engine -> pyo3"),
        ("headrace-server", depends("headrace-load"), "headrace-server -> headrace-load"),
        ("headrace-load", depends("headrace-server"), "headrace-load -> headrace-server"),
        ("headrace-load", depends("pyo3"), "headrace-load -> pyo3"),
        ("headrace-server", depends("pyo3", table="dev-dependencies"), "headrace-server -> pyo3 (dev"),
    ],
)
def test_a_forbidden_arrow_between_crates_is_found(
    tmp_path: Path, crate: str, dependencies: str, said: str
) -> None:
    found = list(arrows.crate_violations(make_workspace(tmp_path, {**ALLOWED, crate: dependencies})))
    assert any(line.startswith(said) for line in found), found


def test_nothing_depends_on_native(tmp_path: Path) -> None:
    crates = {
        "pyo3": "",
        "headrace-native": depends("pyo3"),
        "headrace-extra": depends("headrace-native"),
    }
    found = list(arrows.crate_violations(make_workspace(tmp_path, crates)))
    assert found == ["headrace-extra -> headrace-native (normal dependency)"]


@pytest.mark.parametrize(
    "source", ["//! Says nothing of std.\n", "#![no_std]\nextern crate std;\n", "// #![no_std]\n"]
)
def test_a_sans_io_crate_with_std_is_found(tmp_path: Path, source: str) -> None:
    metadata = make_workspace(tmp_path, ALLOWED, {"headrace-http1": source})
    found = list(arrows.crate_violations(metadata))
    assert len(found) == 1 and found[0].startswith("headrace-http1 -> std"), found


def test_a_sans_io_crate_may_have_std_under_test(tmp_path: Path) -> None:
    source = "#![no_std]\n#[cfg(test)]\nextern crate std;\n"
    metadata = make_workspace(tmp_path, ALLOWED, {"headrace-websocket": source})
    assert list(arrows.crate_violations(metadata)) == []


# --- Arrows between Python modules ----------------------------------------------------------------


def module_violations(folder: Path, files: dict[str, str]) -> list[str]:
    """What is wrong in a package `headrace` of these files (its `__init__` is empty unless it is given)."""
    for name, text in {"__init__.py": "", "supervisor/__init__.py": "", **files}.items():
        path = folder / "python" / "headrace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(arrows.module_violations(arrows.read_modules(folder / "python"), folder))


@pytest.mark.parametrize(
    "text",
    [
        "from headrace.loop import Loop\n",
        "import headrace.loop\n",
        "from ..loop import Loop\n",
        "from .. import loop\n",
        "import headrace._native\n",
        "from headrace._native import LoopCore\n",
        "def start():\n    from headrace.loop import Loop\n",
        "from headrace.server.worker import main\n",
        "try:\n    from headrace.server import worker\nexcept ImportError:\n    pass\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import headrace.loop\n",
    ],
)
def test_the_supervisor_must_not_import_the_loop(tmp_path: Path, text: str) -> None:
    assert len(module_violations(tmp_path, {"supervisor/master.py": text})) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import os, signal\n",
        "from headrace.cli import UsageError\n",
        "from headrace._native import build_info\n",
        "def in_the_child():\n    from headrace.server.worker import main\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from headrace.loop import Loop\n",
    ],
)
def test_what_the_supervisor_may_import(tmp_path: Path, text: str) -> None:
    files = {"supervisor/master.py": text, "cli.py": "class UsageError(Exception): ...\n"}
    assert module_violations(tmp_path, files) == []


def test_the_supervisor_must_not_load_the_loop_by_way_of_another_module(tmp_path: Path) -> None:
    files = {
        "supervisor/master.py": "from headrace.options import parse\n",
        "options.py": "from headrace import loop\ndef parse(): ...\n",
        "loop.py": "",
    }
    found = module_violations(tmp_path, files)
    assert "headrace.supervisor.master -> headrace.options -> headrace.loop" in found


def test_the_package_above_the_supervisor_counts(tmp_path: Path) -> None:
    found = module_violations(tmp_path, {"__init__.py": "from headrace.loop import run\n", "loop.py": ""})
    assert "headrace.supervisor -> headrace -> headrace.loop.run" in found
    lazy = {"__init__.py": "def __getattr__(name):\n    from headrace.loop import run\n    return run\n"}
    assert module_violations(tmp_path, lazy) == []


@pytest.mark.parametrize(
    "text",
    [
        "from headrace.server.command import configure\n",
        "def inside():\n    import headrace.server\n",
        "from headrace import supervisor\n",
        "from headrace._native import Server\n",
    ],
)
def test_the_bench_must_not_import_the_server(tmp_path: Path, text: str) -> None:
    assert module_violations(tmp_path, {"bench/__init__.py": "", "bench/run.py": text})


def test_the_bench_may_use_what_any_user_may(tmp_path: Path) -> None:
    files = {"bench/run.py": "import headrace\nfrom headrace._native import build_info\n"}
    assert module_violations(tmp_path, files) == []


def test_the_tool_prints_each_violation_and_fails(tmp_path: Path) -> None:
    make_workspace(tmp_path, {**ALLOWED, "headrace-engine": depends("pyo3")})
    module_violations(tmp_path, {"bench/run.py": "import headrace.server\n"})
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "check_arrows.py", tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "forbidden arrow: headrace-engine -> pyo3\n" in done.stdout
    assert (
        "forbidden arrow: headrace.bench.run -> headrace.server (python/headrace/bench/run.py:1)\n"
        in done.stdout
    )


# --- The tree -------------------------------------------------------------------------------------


def test_lock_files_pin_by_hash_and_name_no_host() -> None:
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    assert locks
    for lock in locks:
        text = lock.read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text, f"{lock.name} names a host"


def skeleton(name: str) -> dict[str, list]:
    """What the two READMEs must have in common: the shape of the page, and all that is not prose."""
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)
    prose = re.sub(r"^```\n.*?^```$", "", text, flags=re.M | re.S)
    tables = [line for line in prose.splitlines() if line.startswith("|")]
    return {
        "headings": [len(line.split(" ")[0]) for line in prose.splitlines() if line.startswith("#")],
        "commands": [line.split("#")[0].rstrip() for block in blocks for line in block.splitlines()],
        "code": re.findall(r"`[^`]+`", prose),
        "cells in each row of the tables": [line.count("|") for line in tables],
        "figures": [re.findall(r"\d[\d.,]*", line) for line in tables],
        "list items": [prose.count("\n- ")],
        "links": [link for link in re.findall(r"\]\(([^)]+)\)", prose) if "README" not in link],
    }


@pytest.mark.parametrize("part", skeleton("README.md"))
def test_both_readmes_say_the_same(part: str) -> None:
    assert skeleton("README.zh-CN.md")[part] == skeleton("README.md")[part]


def test_the_two_commands_are_the_first_thing_in_the_readme() -> None:
    assert skeleton("README.md")["commands"][:2] == ["make run", "make test"]


@pytest.mark.parametrize(
    "page", sorted(p.relative_to(ROOT).as_posix() for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text(encoding="utf-8")):
        assert (ROOT / page).parent.joinpath(link).exists(), f"{page} links to {link}"


def test_the_architecture_says_why_each_library_is_there() -> None:
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    libraries = {name for name in manifest["workspace"]["dependencies"] if not name.startswith("headrace-")}
    reasons = set(re.findall(r"^\| `([^`]+)` \| [^|]{10,} \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.M))
    assert libraries <= reasons, f"ARCHITECTURE.md says nothing of {sorted(libraries - reasons)}"


def test_the_index_of_the_documents_is_whole() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\(([^/)]+\.md)\)", index))
