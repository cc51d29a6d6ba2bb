"""Fails on a dependency that must never exist: ARCHITECTURE.md says why for each.

    python tools/check_arrows.py [ROOT]

Crates are read from `cargo metadata`, Python modules from their syntax trees; nothing is compiled or imported.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# --- Crates ---------------------------------------------------------------------------------------

#: Sans-IO crates: bytes and times in, actions out. `no_std` makes the compiler hold it; these hold the rest.
SANS_IO = {"headrace-http1", "headrace-websocket"}

#: What gives a crate sockets, clocks, threads or Python.
OUTSIDE_WORLD = {"async-std", "libc", "mio", "nix", "pyo3", "pyo3-ffi", "rustix", "smol", "socket2", "tokio"}

#: Everything of ours, so that a sans-IO crate depends on no other part of the house.
OURS = {f"headrace-{name}" for name in ("engine", "http1", "load", "native", "server", "websocket")}

#: The one crate that names Python, and what naming it looks like.
NATIVE = "headrace-native"
PYTHON_CRATES = {"pyo3", "pyo3-ffi", "pyo3-build-config", "pyo3-macros"}

#: Crate -> what it must never reach, over any number of steps.
NEVER_REACHES = {
    **{crate: OUTSIDE_WORLD | (OURS - {crate}) for crate in SANS_IO},
    "headrace-engine": (OURS - {"headrace-engine"}) | PYTHON_CRATES,
    "headrace-server": {"headrace-load", NATIVE} | PYTHON_CRATES,
    "headrace-load": {"headrace-server", NATIVE} | PYTHON_CRATES,
}


def cargo_metadata(root: Path) -> dict[str, Any]:
    """What cargo knows of the workspace at `root`, resolved as Cargo.lock says."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"check_arrows: {done.stderr.strip()}")
    metadata: dict[str, Any] = json.loads(done.stdout)
    return metadata


def crate_violations(metadata: dict[str, Any]) -> Iterator[str]:
    """One line for each forbidden arrow between crates."""
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    arrows = {
        node["id"]: [
            dep["pkg"]
            for dep in node["deps"]
            # What only builds or tests a crate is not in it.
            if any(kind["kind"] is None for kind in dep["dep_kinds"])
        ]
        for node in metadata["resolve"]["nodes"]
    }
    for member in metadata["workspace_members"]:
        for path in paths_from(member, arrows):
            if names[path[-1]] in NEVER_REACHES.get(names[member], ()):
                yield " -> ".join(names[step] for step in path)
    for package in metadata["packages"]:
        if package["id"] not in metadata["workspace_members"] or package["name"] == NATIVE:
            continue
        for dependency in package["dependencies"]:
            if dependency["name"] == NATIVE or dependency["name"] in PYTHON_CRATES:
                kind = dependency["kind"] or "normal"
                yield f"{package['name']} -> {dependency['name']} ({kind} dependency)"
        if package["name"] in SANS_IO:
            yield from std_violations(package)


def paths_from(start: str, arrows: dict[str, list[str]]) -> Iterator[tuple[str, ...]]:
    """A shortest path to each node that can be reached from `start`."""
    seen = {start}
    queue: list[tuple[str, ...]] = [(start,)]
    for path in queue:
        for target in arrows.get(path[-1], ()):
            if target not in seen:
                seen.add(target)
                queue.append((*path, target))
                yield queue[-1]


def std_violations(package: dict[str, Any]) -> Iterator[str]:
    """Ways for a package's library to reach `std` when it is not under test."""
    library = next(target for target in package["targets"] if "lib" in target["kind"])
    root = Path(library["src_path"])
    if not re.search(r"^#!\[(no_std|cfg_attr\(not\(test\), no_std\))\]", root.read_text(), re.M):
        yield f"{package['name']} -> std ({root.name} does not say #![no_std])"
    for source in sorted(root.parent.rglob("*.rs")):
        if re.search(r"(?<!#\[cfg\(test\)\]\n)^\s*(pub )?extern crate std\b", source.read_text(), re.M):
            yield f"{package['name']} -> std ({source.name} says extern crate std outside its tests)"


# --- Python modules -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """What the modules of one part must never import."""

    part: str
    #: Modules, with all that is below them.
    forbidden: tuple[str, ...]
    #: Names that may be imported from a forbidden module all the same.
    allowed_names: frozenset[str] = frozenset()
    #: Forbidden only as what importing the part loads: naming it inside a function is allowed.
    forbidden_at_import: tuple[str, ...] = ()


#: What the package itself takes from the extension: a description of the build, and an exception's class.
HARMLESS = frozenset({"headrace._native.build_info", "headrace._native.ClientDisconnected"})

RULES = (
    # The master stays small, single-threaded and fork-safe. What a forked worker imports it imports in a function.
    Rule(
        "headrace.supervisor",
        forbidden=("headrace.loop", "headrace._native"),
        allowed_names=HARMLESS,
        forbidden_at_import=("headrace.server.worker",),
    ),
    # The bench measures processes over sockets, our own like a rival's.
    Rule(
        "headrace.bench",
        forbidden=("headrace.server", "headrace.supervisor", "headrace._native"),
        allowed_names=HARMLESS,
    ),
)


@dataclass(frozen=True)
class Import:
    """One name that a module imports."""

    #: The module that the statement names.
    module: str
    #: That module with the name taken from it: again a module, or something inside one.
    name: str
    line: int
    #: Whether importing the importer runs the statement: false inside functions.
    at_import: bool


@dataclass
class Module:
    """A Python source file and its imports."""

    name: str
    path: Path
    imports: list[Import] = field(default_factory=list)


def below(name: str, prefixes: Iterable[str]) -> bool:
    """Whether a dotted name is one of the prefixes, or below one."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def read_modules(folder: Path) -> dict[str, Module]:
    """Every module of the packages in `folder`, by its dotted name."""
    modules = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        module = modules[name] = Module(name, path)
        package = name if is_package else name.rpartition(".")[0]
        collect_imports(ast.parse(path.read_bytes(), path), package, True, module.imports)
    return modules


def collect_imports(node: ast.AST, package: str, at_import: bool, found: list[Import]) -> None:
    """Add the import statements below `node` to `found`; what stands under TYPE_CHECKING never runs."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import():
                found += [Import(alias.name, alias.name, child.lineno, at_import) for alias in child.names]
            case ast.ImportFrom():
                base = child.module or ""
                if child.level:
                    parents = package.split(".")[: len(package.split(".")) - child.level + 1]
                    base = ".".join([*parents, *filter(None, [child.module])])
                found += [
                    Import(base, f"{base}.{alias.name}", child.lineno, at_import) for alias in child.names
                ]
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                for other in child.orelse:
                    collect_imports(ast.Module([other], []), package, at_import, found)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                collect_imports(child, package, False, found)
            case _:
                collect_imports(child, package, at_import, found)


def module_violations(modules: dict[str, Module], root: Path) -> Iterator[str]:
    """One line for each forbidden arrow between Python modules."""
    for rule in RULES:
        for module in modules.values():
            if below(module.name, [rule.part]):
                yield from direct_violations(rule, module, root)
                yield from loaded_violations(rule, module, modules)


def breaks(rule: Rule, found: Import, forbidden: tuple[str, ...]) -> bool:
    """Whether an import statement names what is forbidden."""
    return found.name not in rule.allowed_names and below(found.name, forbidden)


def direct_violations(rule: Rule, module: Module, root: Path) -> Iterator[str]:
    """Forbidden imports that stand in a module of the part itself, in functions too."""
    for found in module.imports:
        if breaks(rule, found, rule.forbidden) or (
            found.at_import and breaks(rule, found, rule.forbidden_at_import)
        ):
            yield f"{module.name} -> {found.name} ({module.path.relative_to(root)}:{found.line})"


def loaded_violations(rule: Rule, module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """Forbidden modules that importing a module of the part loads, by way of modules outside the part."""
    arrows = {name: sorted(loads(other, modules)) for name, other in modules.items()}
    for path in paths_from(module.name, arrows):
        # A path's last module is outside the part, or direct_violations has it.
        last = modules[path[-1]]
        if below(last.name, [rule.part]):
            continue
        for found in last.imports:
            if found.at_import and breaks(rule, found, rule.forbidden + rule.forbidden_at_import):
                yield f"{' -> '.join(path)} -> {found.name}"


def loads(module: Module, modules: dict[str, Module]) -> set[str]:
    """The modules of ours that importing this one runs: what it names, and every package above that."""
    targets: set[str] = set()
    for name in [module.name, *(found.name for found in module.imports if found.at_import)]:
        parts = name.split(".")
        targets.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
    return (targets & modules.keys()) - {module.name}


def main() -> int:
    """Check the tree at ROOT (by default this checkout); status 1 and a line for each violation."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    modules = read_modules(root / "python")
    metadata = cargo_metadata(root)
    found = [*crate_violations(metadata), *module_violations(modules, root)]
    for line in found:
        print(f"forbidden arrow: {line}")
    if not found:
        print(
            f"arrows: {len(metadata['workspace_members'])} crates and {len(modules)} modules, none forbidden"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
