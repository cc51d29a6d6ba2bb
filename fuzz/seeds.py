"""Writes the conformance vectors' bytes into the corpora of the fuzz targets that read plain bytes."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "conformance"))

from vectors import load  # noqa: E402  (the path has to be there first)

# A target's name, and what stands before the bytes: which limits it is to use.
TARGETS = dict.fromkeys(("http1_request", "http1_oracle", "http1_response"), (b"\x00", b"\x01"))
ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n",
    b"HTTP/1.0 404 Not Found\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
    b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n',
)


def main() -> None:
    """Write every seed under a name made of its content, so that a second run writes nothing new."""
    requests = [vector.data for vector in load(ROOT / "conformance") if len(vector.data) < 4096]
    for target, prefixes in TARGETS.items():
        folder = ROOT / "fuzz" / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for data in ANSWERS if target == "http1_response" else requests:
            for prefix in prefixes:
                seed = prefix + data
                (folder / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)


if __name__ == "__main__":
    main()
