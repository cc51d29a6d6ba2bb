"""A server that speaks MongoDB's protocol, in Java, with a store in memory.

No package registry has MongoDB itself. This stands for the protocol: it measures the client's side, never the
database; a real server can be given by its URL.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from headrace.bench.environments import cache_folder
from headrace.bench.model import PROGRAMS, Program, Service
from headrace.bench.process import Processes, accepts, free_port
from headrace.bench.services.databases import APT, PATIENCE, path_of
from headrace.cli import UsageError

JAVA = Program("java", f"{APT} default-jdk-headless")
FOLDER = cache_folder() / "mongodb"
MAIN = FOLDER / "BenchMongo.class"


class Jars(Program):
    """The Java libraries and the compiled program: there, or to be made by ``bench setup``."""

    def find(self) -> str | None:
        """The compiled program, which is written last."""
        return str(MAIN) if MAIN.exists() else None


def make() -> None:
    """Fetch the libraries with Maven and compile the program.

    :raises UsageError: when that fails.
    """
    source = PROGRAMS / "mongodb"
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "pom.xml", FOLDER)
    copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={FOLDER / 'jars'}"]
    for words in (
        copy,
        ["javac", "-cp", f"{FOLDER}/jars/*", "-d", str(FOLDER), str(source / "BenchMongo.java")],
    ):
        try:
            subprocess.run(words, cwd=FOLDER, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise UsageError(f"{words[0]} is missing: {APT} default-jdk-headless maven") from None
        except subprocess.CalledProcessError as error:
            last = (error.stdout + error.stderr).strip().splitlines()[:1]
            raise UsageError(f"{words[0]} failed: {''.join(last)}") from None


def start_mongodb(processes: Processes, folder: Path) -> str:
    """Start the server."""
    port = free_port()
    small = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    words = [path_of(JAVA), *small, "-cp", f"{FOLDER}:{FOLDER}/jars/*", "BenchMongo", str(port)]
    running = processes.start("mongodb", words, folder=folder)
    processes.wait_ready(running, lambda: accepts(port), PATIENCE)
    return f"mongodb://127.0.0.1:{port}/"


SERVICE = Service(
    "mongodb",
    "MongoDB's protocol over memory: stands for the protocol, not for the database",
    (JAVA, Jars("BenchMongo.class", "headrace bench setup mongodb")),
    start_mongodb,
    "HEADRACE_BENCH_MONGODB",
    setup=make,
    setup_words="mvn dependency:copy-dependencies (de.bwaldvogel:mongo-java-server:1.46.0), javac",
)
