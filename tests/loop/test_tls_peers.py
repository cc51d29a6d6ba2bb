"""TLS with peers that are slow, odd, broken or gone, on asyncio's own loop and on ours."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pytest
from tls_support import PATIENCE, ByHand, Certificates, Echo, Recorder, Reports, serving

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(scope="module")
def certificates(
    missing: Callable[[str], NoReturn], tmp_path_factory: pytest.TempPathFactory
) -> Certificates:
    openssl = shutil.which("openssl") or missing("openssl")
    return Certificates(openssl, tmp_path_factory.mktemp("certificates"))


def against(
    run: Run, certificates: Certificates, peer: Callable[[ByHand], Any], factory: Any = Echo, **options: Any
) -> tuple[Any, Any, list[tuple[str, type]]]:
    """Run ``peer`` in a thread against a server; gives its protocol, what the connection was lost with, and what
    the exception handler was told."""

    def blocking(address: tuple[str, int]) -> None:
        with ByHand(address, certificates.client()) as by_hand:
            peer(by_hand)

    async def main() -> tuple[Any, Any, list[tuple[str, type]]]:
        protocols: list[Any] = []

        def make() -> Any:
            protocols.append(factory())
            return protocols[-1]

        with Reports() as reports:
            async with serving(make, certificates.server(), **options) as address:
                await asyncio.to_thread(blocking, address)
                (protocol,) = protocols
                lost = await protocol.lost if protocol.calls else None
                return protocol, lost, reports.brief()

    return run(main)


def test_one_byte_at_a_time(run: Run, certificates: Certificates) -> None:
    def peer(by_hand: ByHand) -> None:
        by_hand.handshake(by_hand.bytewise)
        by_hand.bytewise(by_hand.records(b"hello", b", ", b"world"))
        assert by_hand.read(12) == b"hello, world"
        by_hand.bytewise(by_hand.closing())

    protocol, lost, reports = against(run, certificates, peer)
    assert (bytes(protocol.data), lost, reports) == (b"hello, world", None, [])
    assert protocol.calls == ["made", "data", "eof", "lost"]


def test_records_cut_anywhere(run: Run, certificates: Certificates) -> None:
    source = random.Random(5)
    messages = [source.randbytes(source.choice([1, 20, 1000, 16384, 40_000])) for _ in range(60)]

    def peer(by_hand: ByHand) -> None:
        by_hand.handshake()
        rest = by_hand.records(*messages)
        while rest:
            length = source.choice([1, 4, 5, 6, 1000, 16_000, 30_000])
            by_hand.socket.sendall(rest[:length])
            rest = rest[length:]
            time.sleep(0.0005)
        by_hand.socket.sendall(by_hand.closing())
        with contextlib.suppress(EOFError, ConnectionResetError, ssl.SSLError):
            by_hand.read(1)

    protocol, lost, reports = against(run, certificates, peer, Recorder)
    assert bytes(protocol.data) == b"".join(messages)
    assert (lost, reports) == (None, [])


def test_data_and_close_notify_in_one_segment(run: Run, certificates: Certificates) -> None:
    def peer(by_hand: ByHand) -> None:
        by_hand.handshake()
        by_hand.socket.sendall(by_hand.records(b"last ", b"words") + by_hand.closing())
        with contextlib.suppress(EOFError, ssl.SSLError):
            by_hand.read(1)

    protocol, lost, reports = against(run, certificates, peer, Recorder)
    assert (bytes(protocol.data), lost, reports) == (b"last words", None, [])
    assert protocol.calls == ["made", "data", "eof", "lost"]


def test_an_end_without_close_notify(run: Run, certificates: Certificates) -> None:
    def peer(by_hand: ByHand) -> None:
        by_hand.handshake()
        by_hand.socket.sendall(by_hand.records(b"half a word"))
        assert by_hand.read(11) == b"half a word"
        by_hand.socket.shutdown(socket.SHUT_WR)

    protocol, lost, reports = against(run, certificates, peer)
    assert (bytes(protocol.data), lost, reports) == (b"half a word", None, [])
    assert protocol.calls == ["made", "data", "eof", "lost"]


def test_half_a_record_and_an_end(run: Run, certificates: Certificates) -> None:
    def peer(by_hand: ByHand) -> None:
        by_hand.handshake()
        by_hand.socket.sendall(by_hand.records(b"whole") + by_hand.records(b"half")[:-3])
        assert by_hand.read(5) == b"whole"

    protocol, _, reports = against(run, certificates, peer)
    assert (bytes(protocol.data), reports) == (b"whole", [])


@pytest.mark.parametrize("when", ["handshake", "idle", "answering"])
def test_a_reset(run: Run, certificates: Certificates, when: str) -> None:
    def peer(by_hand: ByHand) -> None:
        if when == "handshake":
            with contextlib.suppress(ssl.SSLWantReadError):
                by_hand.tls.do_handshake()
            by_hand.socket.sendall(by_hand.outgoing.read())
        else:
            by_hand.handshake()
            by_hand.socket.sendall(by_hand.records(b"x"))
            by_hand.read(1)
            if when == "answering":
                by_hand.socket.sendall(by_hand.records(*[b"y" * 16_000] * 100))
        by_hand.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.05)

    protocol, lost, reports = against(run, certificates, peer)
    assert reports == []
    if when == "handshake":
        assert protocol.calls == []
    else:
        assert isinstance(lost, ConnectionError)
        assert protocol.calls[-1] == "lost"


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x80" * 50])
def test_no_tls_at_all(run: Run, certificates: Certificates, garbage: bytes) -> None:
    def peer(by_hand: ByHand) -> None:
        by_hand.socket.sendall(garbage)
        with contextlib.suppress(ConnectionResetError):
            while by_hand.socket.recv(1000):
                pass

    protocol, _, reports = against(run, certificates, peer)
    assert protocol.calls == []
    assert reports == []


@pytest.mark.parametrize("place", [0, 3, 4, 5, 10, -1])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_record_that_was_tampered_with(
    run: Run, certificates: Certificates, before: int, place: int
) -> None:
    def peer(by_hand: ByHand) -> None:
        by_hand.handshake()
        good = by_hand.records(*[b"good"] * before)
        if before == 1:
            by_hand.socket.sendall(good)
            assert by_hand.read(4) == b"good"
            good = b""
        bad = bytearray(by_hand.records(b"x" * 100))
        bad[place] ^= 0x41
        by_hand.socket.sendall(good + bad)
        # A longer length than the record's waits for what never comes.
        by_hand.socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while by_hand.socket.recv(1000):
                pass

    protocol, lost, reports = against(run, certificates, peer, Echo)
    assert reports == []
    assert protocol.calls[0] == "made"
    assert b"x" not in protocol.data
    assert lost is None or isinstance(lost, (ssl.SSLError, ConnectionError))
    if before < 3:
        assert bytes(protocol.data) == b"good" * before


def test_a_handshake_that_takes_too_long(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        silent = socket.create_server(("127.0.0.1", 0))
        with silent, Reports() as reports:
            message = "SSL handshake is taking longer than 0.05 seconds: aborting the connection"
            with pytest.raises(ConnectionAbortedError, match=message):
                await loop.create_connection(
                    Recorder,
                    *silent.getsockname(),
                    ssl=certificates.client(),
                    server_hostname="localhost",
                    ssl_handshake_timeout=0.05,
                )
            assert reports.brief() == []

    def silence(by_hand: ByHand) -> None:
        assert by_hand.socket.recv(1) == b""

    run(main)
    protocol, _, reports = against(run, certificates, silence, ssl_handshake_timeout=0.05)
    assert (protocol.calls, reports) == ([], [])


def test_a_shutdown_that_takes_too_long(run: Run, certificates: Certificates) -> None:
    class Closing(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.write(b"bye")
            self.transport.close()

    def peer(by_hand: ByHand) -> None:
        by_hand.handshake()
        by_hand.socket.sendall(by_hand.records(b"x"))
        assert by_hand.read(3) == b"bye"
        with contextlib.suppress(ConnectionResetError):
            while by_hand.socket.recv(1000):
                pass

    start = time.monotonic()
    protocol, lost, reports = against(run, certificates, peer, Closing, ssl_shutdown_timeout=0.1)
    assert 0.1 <= time.monotonic() - start < PATIENCE
    assert isinstance(lost, TimeoutError)
    assert str(lost) == "SSL shutdown timed out"
    assert (protocol.calls, reports) == (["made", "data", "lost"], [])


def test_a_megabyte_to_a_peer_that_reads_slowly(run: Run, certificates: Certificates) -> None:
    size = 1 << 20

    class Generous(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            for _ in range(16):
                self.transport.write(b"z" * size)

    def peer(by_hand: ByHand) -> None:
        by_hand.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        by_hand.handshake()
        by_hand.socket.sendall(by_hand.records(b"x"))
        for turn in range(256):
            if turn % 64 == 0:
                time.sleep(0.02)
            assert by_hand.read(size // 16) == b"z" * (size // 16)
        by_hand.socket.sendall(by_hand.closing())

    protocol, lost, reports = against(run, certificates, peer, Generous)
    assert (lost, reports) == (None, [])
    assert "pause" in protocol.calls
    assert protocol.calls.count("pause") == protocol.calls.count("resume")
