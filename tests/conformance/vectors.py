"""Reads the vectors of ``conformance/``; their format is described in the README there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_ESCAPES = {"r": b"\r", "n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\"}


@dataclass
class Request:
    """A complete message that the application gets; ``fields`` and ``host`` are None where nothing is said."""

    line: bytes
    body: bytes = b""
    close: bool = False
    expect_continue: bool = False
    upgrade: bytes | None = None
    host: bytes | None = None
    fields: list[tuple[bytes, bytes]] | None = None


@dataclass
class Vector:
    """Bytes that a server receives, and what it has to read in them."""

    file: str
    name: str
    data: bytes = b""
    requests: list[Request] = field(default_factory=list)
    reject: int | None = None
    incomplete: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


def load(folder: Path) -> list[Vector]:
    """All vectors of the files in ``folder``, in order."""
    return [vector for path in sorted(folder.glob("*.http")) for vector in _parse(path)]


def _parse(path: Path) -> Iterator[Vector]:
    vector: Vector | None = None
    for line in path.read_text("ascii").splitlines():
        if line.startswith("== "):
            if vector:
                yield vector
            vector = Vector(path.stem, line[3:])
        elif not line or line.startswith("#"):
            continue
        elif vector is None:
            raise ValueError(f"{path}: a name comes first: {line}")
        elif line.startswith("< "):
            vector.data += unescape(line[2:])
        elif line.startswith(">   "):
            _detail(vector.requests[-1], line[4:])
        elif line.startswith("> "):
            _expectation(vector, line[2:])
        else:
            raise ValueError(f"{path}: not a line of a vector: {line}")
    if vector:
        yield vector


def _expectation(vector: Vector, text: str) -> None:
    kind, _, rest = text.partition(" ")
    if kind == "request":
        vector.requests.append(Request(unescape(rest)))
    elif kind == "reject":
        vector.reject = int(rest)
    elif text == "incomplete":
        vector.incomplete = True
    else:
        raise ValueError(f"not an expectation: {text}")


def _detail(request: Request, text: str) -> None:
    kind, _, rest = text.partition(" ")
    match kind:
        case "body":
            request.body = unescape(rest)
        case "close":
            request.close = True
        case "continue":
            request.expect_continue = True
        case "upgrade":
            request.upgrade = unescape(rest)
        case "host":
            request.host = unescape(rest)
        case "field":
            name, _, value = rest.partition(":")
            request.fields = [*(request.fields or []), (unescape(name), unescape(value.removeprefix(" ")))]
        case _:
            raise ValueError(f"not a detail: {text}")


def unescape(text: str) -> bytes:
    r"""The bytes that ``text`` stands for: ``\r \n \t \0 \\ \xHH`` and ``\{N*TEXT}``."""
    data, end = _unescape(text, 0, "")
    if end != len(text):
        raise ValueError(f"unbalanced: {text}")
    return data


def _unescape(text: str, at: int, end: str) -> tuple[bytes, int]:
    data = bytearray()
    while at < len(text):
        char = text[at]
        at += 1
        if char == end:
            return bytes(data), at
        if char != "\\":
            data += char.encode("ascii")
            continue
        escape = text[at]
        at += 1
        if escape == "x":
            data += bytes.fromhex(text[at : at + 2])
            at += 2
        elif escape == "{":
            count, at = _unescape(text, at, "*")
            repeated, at = _unescape(text, at, "}")
            data += repeated * int(count)
        else:
            data += _ESCAPES[escape]
    if end:
        raise ValueError(f"a repetition without its end: {text}")
    return bytes(data), at
