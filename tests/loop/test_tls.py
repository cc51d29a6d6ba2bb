"""TLS between two ends of one loop: what protocols can observe, on asyncio's own loop and on ours."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import shutil
import ssl
import subprocess
import sys
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import headrace
import pytest
from tls_support import Certificates, Echo, Recorder, Reports, connected, serving

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(scope="module")
def certificates(
    missing: Callable[[str], NoReturn], tmp_path_factory: pytest.TempPathFactory
) -> Certificates:
    openssl = shutil.which("openssl") or missing("openssl")
    return Certificates(openssl, tmp_path_factory.mktemp("certificates"))


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def is_native(transport: Any) -> bool:
    return type(transport).__module__ == "headrace.tls"


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize("size", [1, 1000, 16384, 16385, 100_000, 3_000_000])
def test_messages_of_every_size_come_back(
    run: Run, certificates: Certificates, version: ssl.TLSVersion, size: int
) -> None:
    message = random.Random(size).randbytes(size)

    async def main() -> None:
        context = certificates.server(maximum_version=version)
        echo, client = await connected(certificates, Echo, server_context=context)
        for turn in range(1, 4):
            client.transport.write(message)
            assert await client.received(turn * size) == message * turn
        assert client.transport.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        client.transport.close()
        assert await client.lost is None
        assert await echo.lost is None
        assert [call for call in echo.calls if call not in ("pause", "resume")] == [
            "made",
            "data",
            "eof",
            "lost",
        ]
        assert client.calls[-1] == "lost"

    run(main)


def test_streams(run: Run, certificates: Certificates) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line[:-1])
            writer.writelines([b"", b"|", bytearray(b"\n")])
            await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certificates.server())
        address = server.sockets[0].getsockname()
        context = certificates.client()
        reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
        for length in (0, 1, 30_000):
            writer.write(b"x" * length + b"\n")
            await writer.drain()
            assert await reader.readexactly(length + 2) == b"x" * length + b"|\n"
        writer.write(b"a\nb\nc\n")
        assert [await reader.readuntil(b"|") for _ in range(3)] == [b"a|", b"\nb|", b"\nc|"]
        assert await reader.read(1) == b"\n"
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        writer.write(b"later\n")
        assert await reader.read(100) == b"later|\n"
        writer.close()
        await writer.wait_closed()
        assert await reader.read() == b""
        server.close()

    run(main)


def test_a_bulk_stream_with_a_slow_reader(run: Run, certificates: Certificates) -> None:
    size = 4_000_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(4):
            writer.write(bytes(size // 4))
            await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certificates.server())
        address = server.sockets[0].getsockname()
        context = certificates.client()
        reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
        count = 0
        while data := await reader.read(50_000):
            count += len(data)
            if count % 7 == 0:
                await asyncio.sleep(0.001)
        assert count == size
        writer.close()
        server.close()

    run(main)


def test_what_is_told_of_the_connection(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        echo, client = await connected(certificates, Echo)
        info = client.transport.get_extra_info
        assert info("peercert")["subject"] == ((("commonName", "localhost"),),)
        assert info("compression") is None
        assert len(info("cipher")) == 3
        assert isinstance(info("ssl_object"), ssl.SSLObject)
        assert isinstance(info("sslcontext"), ssl.SSLContext)
        assert info("peername") == echo.transport.get_extra_info("sockname")
        assert info("socket").fileno() >= 0
        assert info("nothing", "default") == "default"
        assert echo.transport.get_extra_info("peercert") is None
        assert client.transport.get_protocol() is client
        assert not client.transport.can_write_eof()
        with pytest.raises(NotImplementedError):
            client.transport.write_eof()
        assert not client.transport.is_closing()
        client.transport.close()
        assert client.transport.is_closing()
        await echo.lost
        await client.lost

    run(main)


def test_alpn_and_server_name(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        asked: list[Any] = []
        context, other = certificates.server(), certificates.server("other")

        def choose(connection: Any, name: str | None, _: ssl.SSLContext) -> None:
            asked.append(name)
            if name == "other":
                connection.context = other

        context.sni_callback = choose
        for each in (context, other):
            each.set_alpn_protocols(["h2", "http/1.1"])
        for name in ("localhost", "other"):
            theirs = certificates.client(name)
            theirs.set_alpn_protocols(["http/1.1"])
            options = {"server_context": context, "client_context": theirs, "server_hostname": name}
            echo, client = await connected(certificates, Echo, **options)
            ssl_object = client.transport.get_extra_info("ssl_object")
            assert ssl_object.selected_alpn_protocol() == "http/1.1"
            assert client.transport.get_extra_info("peercert")["subject"] == ((("commonName", name),),)
            client.transport.close()
            await asyncio.gather(echo.lost, client.lost)
        assert asked == ["localhost", "other"]

    run(main)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_client_certificates(run: Run, certificates: Certificates, version: ssl.TLSVersion) -> None:
    async def main() -> None:
        context = certificates.server(maximum_version=version, verify_mode=ssl.CERT_REQUIRED)
        context.load_verify_locations(certificates.folder / "other.pem")
        theirs = certificates.client()
        theirs.load_cert_chain(certificates.folder / "other.pem", certificates.folder / "other.key")
        echo, client = await connected(certificates, Echo, server_context=context, client_context=theirs)
        assert echo.transport.get_extra_info("peercert")["subject"] == ((("commonName", "other"),),)
        client.transport.close()
        await asyncio.gather(echo.lost, client.lost)

    run(main)


def test_a_certificate_asked_for_after_the_handshake(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        context = certificates.server(post_handshake_auth=True, verify_mode=ssl.CERT_OPTIONAL)
        context.load_verify_locations(certificates.folder / "other.pem")
        theirs = certificates.client(post_handshake_auth=True)
        echo, client = await connected(certificates, Echo, server_context=context, client_context=theirs)
        client.transport.write(b"before")
        await client.received(6)
        theirs.load_cert_chain(certificates.folder / "other.pem", certificates.folder / "other.key")
        ssl_object = echo.transport.get_extra_info("ssl_object")
        assert ssl_object.getpeercert() is None
        ssl_object.verify_client_post_handshake()
        echo.transport.write(b" asked ")
        assert await client.received(13) == b"before asked "
        client.transport.write(b"after")
        assert await client.received(18) == b"before asked after"
        client.transport.close()
        await asyncio.gather(echo.lost, client.lost)

    run(main)


def test_a_certificate_that_is_not_trusted(run: Run, certificates: Certificates) -> None:
    async def main() -> list[tuple[str, type]]:
        servers: list[Recorder] = []

        def factory() -> Recorder:
            servers.append(Recorder())
            return servers[-1]

        loop = asyncio.get_running_loop()
        with Reports() as reports:
            async with serving(factory, certificates.server()) as address:
                with pytest.raises(ssl.SSLCertVerificationError):
                    context = certificates.client("other")
                    await loop.create_connection(Recorder, *address, ssl=context, server_hostname="localhost")
                with pytest.raises(ssl.CertificateError, match="Hostname mismatch"):
                    context = certificates.client()
                    await loop.create_connection(Recorder, *address, ssl=context, server_hostname="another")
                await asyncio.sleep(0.05)
        assert [server.calls for server in servers] == [[], []]
        return reports.brief()

    assert run(main) == []


def test_wrong_arguments(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        echo, client = await connected(certificates, Echo)
        transport = client.transport
        for wrong in ("text", 1, None, [b"x"]):
            with pytest.raises(TypeError, match="data: expecting a bytes-like instance, got "):
                transport.write(wrong)
        with pytest.raises(TypeError):
            transport.write()
        with pytest.raises(ValueError, match=r"high .* must be >= low"):
            transport.set_write_buffer_limits(high=1, low=2)
        transport.write(b"")
        transport.write(bytearray(b"one"))
        transport.write(memoryview(b"_two_")[1:4])
        transport.writelines([])
        transport.writelines(part for part in (b"thr", b"", bytearray(b"e"), memoryview(b"e")))
        assert await client.received(11) == b"onetwothree"
        changing = bytearray(b"kept")
        transport.write(data=changing)
        changing[:] = b"lost"
        assert (await client.received(15))[11:] == b"kept"
        transport.close()
        transport.write(b"after close")
        await asyncio.gather(echo.lost, client.lost)
        assert bytes(echo.data) == b"onetwothreekept"

    run(main)


def test_a_read_that_is_paused(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        sender, client = await connected(certificates, Recorder)
        transport = client.transport
        assert transport.is_reading()
        transport.pause_reading()
        transport.pause_reading()
        assert not transport.is_reading()
        sender.transport.write(b"x" * 600_000)
        sender.transport.write(b"y" * 600_000)
        await asyncio.sleep(0.05)
        assert client.calls == ["made"]
        transport.resume_reading()
        assert transport.is_reading()
        assert await client.received(1_200_000) == b"x" * 600_000 + b"y" * 600_000
        transport.pause_reading()
        sender.transport.write(b"last words")
        sender.transport.close()
        await asyncio.sleep(0.05)
        assert len(client.data) == 1_200_000
        transport.resume_reading()
        assert await client.lost is None
        assert bytes(client.data[-10:]) == b"last words"
        assert client.calls[-2:] == ["eof", "lost"]

    run(main)


def test_a_protocol_that_pauses_while_it_is_fed(run: Run, certificates: Certificates) -> None:
    class Pausing(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(0.001, self.transport.resume_reading)

    async def main() -> None:
        sender, client = await connected(certificates, Recorder, Pausing)
        for number in range(50):
            sender.transport.write(bytes([number]) * 20_000)
        expected = b"".join(bytes([number]) * 20_000 for number in range(50))
        assert await client.received(len(expected)) == expected
        client.transport.abort()
        await asyncio.gather(sender.lost, client.lost)

    run(main)


def test_the_limits_of_the_write_buffer(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        sender, client = await connected(certificates, Recorder)
        transport = sender.transport
        assert transport.get_write_buffer_limits() == (128 * 1024, 512 * 1024)
        assert transport.get_write_buffer_size() == 0
        client.transport.pause_reading()
        while "pause" not in sender.calls:
            transport.write(b"x" * 1_000_000)
            await asyncio.sleep(0)
        assert transport.get_write_buffer_size() >= 512 * 1024
        client.transport.resume_reading()
        while "resume" not in sender.calls:
            await asyncio.sleep(0.001)
        assert transport.get_write_buffer_size() <= 128 * 1024
        assert sender.calls == ["made", "pause", "resume"]
        transport.set_write_buffer_limits(high=1000)
        assert transport.get_write_buffer_limits() == (250, 1000)
        transport.close()
        assert await client.lost is None
        assert await sender.lost is None

    run(main)


def test_writes_of_a_protocol_that_is_told_to_pause(run: Run, certificates: Certificates) -> None:
    """What is written in ``pause_writing`` and after it comes in order, and writing goes on when it may."""

    class Stubborn(Recorder):
        def pause_writing(self) -> None:
            super().pause_writing()
            self.transport.write(b"paused;")

        def resume_writing(self) -> None:
            super().resume_writing()
            self.transport.write(b"resumed;")
            self.transport.close()

    async def main() -> None:
        sender, client = await connected(certificates, Stubborn)
        client.transport.pause_reading()
        written = 0
        while "pause" not in sender.calls:
            sender.transport.write(b"x" * 300_000)
            written += 300_000
        sender.transport.write(b"after;")
        client.transport.resume_reading()
        assert await client.lost is None
        assert bytes(client.data[written:]) == b"paused;after;resumed;"

    run(main)


def test_close_sends_what_was_written_and_abort_does_not(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        for end in ("close", "abort"):
            sender, client = await connected(certificates, Recorder)
            client.transport.pause_reading()
            sender.transport.write(b"x" * 9_000_000)
            getattr(sender.transport, end)()
            if end == "abort":
                assert await sender.lost is None
            client.transport.resume_reading()
            lost = await client.lost
            assert lost is None or isinstance(lost, ConnectionResetError)
            if end == "close":
                assert len(client.data) == 9_000_000
                assert await sender.lost is None
            else:
                assert len(client.data) < 9_000_000
            sender.transport.close()
            sender.transport.abort()
            sender.transport.close()

    run(main)


def test_errors_of_the_protocol(run: Run, certificates: Certificates) -> None:
    class Failing(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError

    async def main() -> list[tuple[str, type]]:
        with Reports() as reports:
            failing, client = await connected(certificates, Failing)
            client.transport.write(b"x")
            assert isinstance(await failing.lost, ZeroDivisionError)
            await client.lost
        context = reports.contexts[0]
        assert context["protocol"].__class__.__name__ == "SSLProtocol"
        return reports.brief()

    assert run(main) == [("Fatal error on SSL protocol", ZeroDivisionError)]


def test_an_eof_received_that_wants_to_stay_open(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        staying, client = await connected(certificates, Recorder)
        staying.keep_open = True
        client.transport.close()
        assert await staying.lost is None
        await client.lost

    run(main)
    assert "returning true from eof_received() has no effect when using ssl" in caplog.text


class Buffered(asyncio.BufferedProtocol):
    """Receives into a buffer of so many bytes."""

    def __init__(self, size: int) -> None:
        self.buffer = bytearray(size)
        self.data = bytearray()
        self.made = asyncio.get_running_loop().create_future()
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.made.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


@pytest.mark.parametrize("size", [1, 1000, 100_000])
def test_a_buffered_protocol(run: Run, certificates: Certificates, size: int) -> None:
    message = random.Random(size).randbytes(10 * min(size, 20_000) + 7)

    async def main() -> None:
        buffered, client = await connected(certificates, lambda: Buffered(size))
        client.transport.write(message)
        client.transport.close()
        assert await buffered.lost is None
        assert bytes(buffered.data) == message
        await client.lost

    run(main)


def test_another_protocol_takes_over(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        echo, client = await connected(certificates, Echo)
        client.transport.write(b"one")
        await client.received(3)
        second = Buffered(100)
        client.transport.set_protocol(second)
        assert client.transport.get_protocol() is second
        client.transport.write(b"two")
        while second.data != b"two":
            await asyncio.sleep(0.001)
        reader = asyncio.StreamReader()
        client.transport.set_protocol(asyncio.StreamReaderProtocol(reader))
        client.transport.write(b"three\n")
        assert await reader.readline() == b"three\n"
        client.transport.set_protocol(client)
        client.transport.write(b"four")
        assert await client.received(7) == b"onefour"
        client.transport.close()
        await asyncio.gather(echo.lost, client.lost)

    run(main)


def test_start_tls(run: Run, certificates: Certificates) -> None:
    """Both ends of a plain connection go over to TLS, by transports."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[Any] = loop.create_future()

        def factory() -> Recorder:
            protocol = Echo()
            loop.call_soon(accepted.set_result, protocol)
            return protocol

        server = await loop.create_server(factory, "127.0.0.1", 0)
        transport, client = await loop.create_connection(Recorder, *server.sockets[0].getsockname())
        transport.write(b"plain")
        await client.received(5)
        echo = await accepted
        echo.transport, transport = await asyncio.gather(
            loop.start_tls(echo.transport, echo, certificates.server(), server_side=True),
            loop.start_tls(transport, client, certificates.client(), server_hostname="localhost"),
        )
        transport.write(b" and not")
        assert await client.received(13) == b"plain and not"
        assert client.calls == ["made", "data"]
        ours = isinstance(loop, headrace.Loop)
        assert (is_native(transport), is_native(echo.transport)) == (ours, ours)
        transport.close()
        await asyncio.gather(echo.lost, client.lost)
        server.close()

    run(main)


def test_start_tls_of_streams(run: Run, certificates: Certificates) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        writer.write(b"go\n")
        await writer.drain()
        await writer.start_tls(certificates.server())
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"STARTTLS\n")
        assert await reader.readline() == b"go\n"
        await writer.start_tls(certificates.client(), server_hostname="localhost")
        for message in (b"x", b"y" * 50_000):
            writer.write(message)
            await writer.drain()
            assert await reader.readexactly(len(message)) == message
        writer.close()
        await writer.wait_closed()
        server.close()

    run(main)


def test_tls_in_tls(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        echo, client = await connected(certificates, Echo)
        outer = client.transport
        echo.transport, client.transport = await asyncio.gather(
            loop.start_tls(echo.transport, echo, certificates.server(), server_side=True),
            loop.start_tls(outer, client, certificates.client(), server_hostname="localhost"),
        )
        assert not is_native(client.transport)
        client.transport.write(b"x" * 200_000)
        assert await client.received(200_000) == b"x" * 200_000
        client.transport.close()
        await asyncio.gather(echo.lost, client.lost)

    run(main)


def test_many_connections_leave_nothing_behind(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        transports = []
        for number in range(40):
            echo, client = await connected(certificates, Echo)
            client.transport.write(b"x" * 1000)
            await client.received(1000)
            transports.append(weakref.ref(client.transport))
            if number % 2:
                client.transport.close()
            else:
                client.transport.abort()
            await asyncio.gather(echo.lost, client.lost)
        del echo, client
        await asyncio.sleep(0.01)
        gc.collect()
        assert [reference() for reference in transports] == [None] * 40

    run(main)


def test_what_is_native_and_what_is_not(certificates: Certificates) -> None:
    """Plain ``ssl`` gets the native way; whatever somebody has changed keeps asyncio's."""

    class Own(ssl.SSLObject):
        pass

    async def kinds(**options: Any) -> tuple[bool, bool]:
        echo, client = await connected(certificates, Echo, **options)
        client.transport.write(b"x" * 5000)
        await client.received(5000)
        found = is_native(echo.transport), is_native(client.transport)
        client.transport.close()
        await asyncio.gather(echo.lost, client.lost)
        return found

    async def patched() -> tuple[bool, bool]:
        original = asyncio.sslproto.SSLProtocol._do_read
        asyncio.sslproto.SSLProtocol._do_read = lambda self: original(self)
        try:
            return await kinds()
        finally:
            asyncio.sslproto.SSLProtocol._do_read = original

    assert headrace.run(kinds()) == (True, True)
    assert headrace.run(kinds(client_context=certificates.client(sslobject_class=Own))) == (True, False)
    assert headrace.run(patched()) == (False, False)
    assert headrace.run(kinds(), debug=True) == (False, False)


def test_both_ways_to_openssl(certificates: Certificates) -> None:
    """Where OpenSSL's functions are not to be had, ``_ssl``'s methods do the same: all tests, in another process."""
    if os.environ.get("HEADRACE_TLS") == "methods":
        pytest.skip("this is the other process")

    async def direct() -> bool:
        echo, client = await connected(certificates, Echo)
        session = client.transport._ssl_protocol._session
        client.transport.abort()
        await asyncio.gather(echo.lost, client.lost)
        return bool(session.direct)

    assert headrace.run(direct()) == (getattr(sys.modules["_ssl"], "__file__", None) is not None)
    files = [__file__, str(Path(__file__).with_name("test_tls_peers.py"))]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "headrace", *files]
    environment = dict(os.environ, HEADRACE_TLS="methods")
    root = Path(__file__).parents[2]
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=root, timeout=110, check=False
    )
    assert result.returncode == 0, result.stdout


def test_streams_are_fed_natively(certificates: Certificates) -> None:
    async def main() -> None:
        async def serve(reader: Any, writer: Any) -> None:
            session = writer.transport._ssl_protocol._session
            writer.write(b"%d" % session.streaming + await reader.readexactly(3))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certificates.server())
        address = server.sockets[0].getsockname()
        context = certificates.client()
        reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
        assert type(reader) is headrace.streams.StreamReader
        writer.write(b"abc")
        assert await reader.read() == b"1abc"
        writer.close()
        server.close()

    headrace.run(main())


def test_aiohttp(run: Run, certificates: Certificates, missing: Callable[[str], NoReturn]) -> None:
    try:
        import aiohttp
        from aiohttp import web
    except ImportError:
        missing("aiohttp")

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async def main() -> None:
        application = web.Application(client_max_size=10_000_000)
        application.router.add_post("/", answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificates.server())
        await site.start()
        port = runner.addresses[0][1]
        context = certificates.client(check_hostname=False)
        async with aiohttp.ClientSession() as session:
            for size in (0, 1, 2_000_000):
                async with session.post(
                    f"https://127.0.0.1:{port}/", data=b"x" * size, ssl=context
                ) as response:
                    assert len(await response.read()) == size
        await runner.cleanup()

    run(main)
