"""Makes a virtual environment of this checkout, and does only what is not done yet.

    PYTHON tools/environment.py FOLDER --requirements FILE --profile release|quick

Three steps, each guarded by what it was made from, so that a second run finds nothing to do:

1. the environment itself, made anew when it does not run or belongs to another interpreter;
2. the locked dependencies, when the lock file's content changed;
3. the extension, when the content of the Rust sources, manifests or Cargo.lock, the profile or the interpreter
   changed.

Content, not times: a fresh checkout or a change of branch touches every time there is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: What the extension is built from; folders are taken whole.
EXTENSION_SOURCES = ("crates", "Cargo.toml", "Cargo.lock", "pyproject.toml")

#: Where maturin puts the extension: one file for each interpreter version, next to the Python sources.
EXTENSION = ROOT / "python" / "headrace" / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"

#: What EXTENSION was built from; beside the environments, for several of them can share one extension.
EXTENSION_STAMP = ROOT / ".cache" / "extension" / f"{sys.implementation.cache_tag}.json"


def say(text: str) -> None:
    """Tell the user what takes the time."""
    print(f"==> {text}", flush=True)


def digest(paths: list[Path]) -> str:
    """A hash of the names and the content of files."""
    total = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        total.update(f"{path.relative_to(ROOT)}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


def files_below(names: tuple[str, ...]) -> list[Path]:
    """The files that these names stand for, in a fixed order."""
    found: list[Path] = []
    for name in names:
        path = ROOT / name
        found += sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return found


def runs(python: Path) -> bool:
    """Whether an environment's interpreter works and has pip: what it was made from may have been removed."""
    try:
        subprocess.run([python, "-I", "-c", "import pip"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def make_environment(folder: Path) -> None:
    """Make `folder` a virtual environment of the running interpreter, unless it is one already."""
    wanted = f"{sys.version}\n{Path(sys.executable).resolve()}\n"
    stamp = folder / "headrace-interpreter"
    if stamp.is_file() and stamp.read_text() == wanted and runs(folder / "bin" / "python"):
        return
    say(f"making {folder.name} with CPython {sys.version.split()[0]}")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    stamp.write_text(wanted)


def install_requirements(folder: Path, lock: Path) -> None:
    """Install a lock file's packages, unless these very ones were installed before."""
    stamp = folder / f"headrace-{lock.stem}"
    wanted = digest([lock])
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    say(f"installing the packages of {lock.relative_to(ROOT)}")
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--require-hashes", "-r", str(lock)], check=True)
    stamp.write_text(wanted)


def extension_state(origin: str) -> dict[str, object]:
    """What the stamp says of an extension that was built from `origin`, and not touched since."""
    about = EXTENSION.stat()
    return {"built from": origin, "size": about.st_size, "written at": about.st_mtime_ns}


def extension_origin(profile: str) -> str:
    """What the extension is built from: sources, profile, interpreter, flags of the compiler."""
    flags = "\0".join(os.environ.get(name, "") for name in ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"))
    return f"{digest(files_below(EXTENSION_SOURCES))} {profile} {sys.version} {flags}"


def is_built(folder: Path, origin: str) -> bool:
    """Whether the extension is there, built from `origin`, and the environment knows the package."""
    installed = folder / "headrace-package"
    if not (EXTENSION.is_file() and EXTENSION_STAMP.is_file() and installed.is_file()):
        return False
    return (
        bool(json.loads(EXTENSION_STAMP.read_text()) == extension_state(origin))
        and installed.read_text() == origin
    )


def build_extension(folder: Path, profile: str, origin: str) -> None:
    """Build the extension, and install the package for editing."""
    say(f"building the extension for CPython {sys.version.split()[0]}, profile {profile}")
    EXTENSION_STAMP.parent.mkdir(parents=True, exist_ok=True)
    EXTENSION_STAMP.unlink(missing_ok=True)
    environment = {**os.environ, "VIRTUAL_ENV": str(folder), "PIP_QUIET": "1"}
    environment.pop("CONDA_PREFIX", None)  # maturin refuses to choose between the two
    maturin = [str(folder / "bin" / "maturin"), "develop", "--locked", "--profile", profile]
    subprocess.run(maturin, check=True, cwd=ROOT, env=environment)
    EXTENSION_STAMP.write_text(json.dumps(extension_state(origin)))
    folder.joinpath("headrace-package").write_text(origin)


def main() -> int:
    """Bring the environment up to date; a failed step has already said why."""
    parser = argparse.ArgumentParser(description="Make or update a virtual environment of this checkout.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--requirements", type=Path, required=True, help="a lock file with hashes")
    parser.add_argument("--profile", choices=["release", "quick"], required=True, help="cargo profile")
    args = parser.parse_args()
    folder = args.folder.absolute()
    try:
        origin = extension_origin(args.profile)
        if not is_built(folder, origin):
            # First, for it costs nothing: who lacks a compiler learns it before packages are downloaded.
            subprocess.run([ROOT / "tools" / "toolchain.sh"], check=True)
        make_environment(folder)
        install_requirements(folder, args.requirements.resolve())
        if not is_built(folder, origin):  # the environment may have been made anew
            build_extension(folder, args.profile, origin)
    except FileNotFoundError as error:
        print(f"headrace: {error.filename} is missing", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        return error.returncode if error.returncode > 0 else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
