"""``headrace.Loop``: CPython's own selector event loop with its engine replaced by a native one.

What is overridden here are few, named hooks of ``asyncio.SelectorEventLoop``; all else (connection racing,
``create_server``'s address work, TLS, subprocesses, signals, executors) is inherited, and so follows CPython.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys
import warnings
from asyncio import base_events, constants, events, format_helpers, sslproto, unix_events
from asyncio.log import logger
from collections.abc import Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from headrace import _native, accepting, children, datagram, streams
from headrace.transport import SocketTransport

_T = TypeVar("_T")

Handle, TimerHandle = _native._define_handles(events.Handle, events.TimerHandle)


def _borrow_methods() -> None:
    """Give the native handles the cold methods of asyncio's: they ask for attributes alone, which ours have."""
    for native, model in ((Handle, events.Handle), (TimerHandle, events.TimerHandle)):
        for name in ("__repr__", "_repr_info", "_run", "get_context"):
            if hasattr(model, name):  # get_context: from 3.12 on
                setattr(native, name, getattr(model, name))
    for name in ("__hash__", "__lt__", "__le__", "__gt__", "__ge__", "__eq__", "when"):
        setattr(TimerHandle, name, getattr(events.TimerHandle, name))


_borrow_methods()

if sys.version_info >= (3, 13):

    def _format_source(callback: Any, args: Any, debug: bool) -> str:
        return str(format_helpers._format_callback_source(callback, args, debug=debug))

else:

    def _format_source(callback: Any, args: Any, debug: bool) -> str:
        return str(format_helpers._format_callback_source(callback, args))


class _Selector(selectors.BaseSelector):
    """What the inherited classes may ask of the loop's selector: which descriptors it watches.

    It cannot be asked to wait: the native core does that.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop: Loop | None = loop

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise NotImplementedError("use loop.add_reader() and loop.add_writer()")

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise NotImplementedError("use loop.remove_reader() and loop.remove_writer()")

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        raise NotImplementedError("the loop's native core waits for events")

    def close(self) -> None:
        self._loop = None

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        return self.get_map()[fd]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        if self._loop is None:
            return {}
        return {
            fd: selectors.SelectorKey(
                fd,
                fd,
                (selectors.EVENT_READ if read else 0) | (selectors.EVENT_WRITE if write else 0),
                (None, None),
            )
            for fd, (read, write) in self._loop._watched().items()
        }

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get_map())


class Loop(_native.LoopCore, asyncio.SelectorEventLoop):
    """An asyncio event loop with a native engine.

    :param immediate_writes: whether transports send each ``write`` at once. By default what one callback writes
        is sent together when it returns, which saves system calls; code that blocks the thread after writing and
        before it returns to the loop needs ``True`` (or ``transport.immediate = True``).
    :param native_streams: whether connections of ``asyncio.start_server`` and ``asyncio.open_connection`` get
        readers with native methods: see :mod:`headrace.streams`.
    """

    if TYPE_CHECKING:  # inherited, private, and so not in typeshed
        _transports: Any
        _check_closed: Any
        _check_thread: Any
        _check_callback: Any
        _ensure_fd_no_transport: Any
        _child_watcher_callback: Any

    def __init__(self, *, immediate_writes: bool = False, native_streams: bool = True) -> None:
        self.immediate_writes = immediate_writes
        self.native_streams = native_streams
        super().__init__(_Selector(self))
        self._children = children.Children(self)

    def close(self) -> None:
        """Close the loop; it must not be running."""
        closed = self.is_closed()
        if not closed and not self.is_running():
            self._prepare_close()
            self._children.close()
        super().close()
        if not closed:
            self._release()

    # -- scheduling ----------------------------------------------------------------------------------------

    if sys.version_info >= (3, 14):

        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
            """Schedule a callback from any thread; ``cancel()`` waits while the callback runs.

            :param callback: called with ``args`` in the loop's thread.
            :param context: the context to run it in; by default a copy of the current one.
            """
            self._check_closed()
            if self.get_debug():
                self._check_callback(callback, "call_soon_threadsafe")
            make: Any = events._ThreadSafeHandle
            handle: asyncio.Handle = make(callback, args, self, context)
            if handle._source_traceback:  # type: ignore[attr-defined]
                del handle._source_traceback[-1]  # type: ignore[attr-defined]
            self._add_callback(handle)
            self._write_to_self()
            return handle

    # -- called by the native half, in debug mode and on errors ---------------------------------------------

    def _check_scheduling(self, callback: Any, method: str, check_thread: bool) -> None:
        if check_thread:
            self._check_thread()
        self._check_callback(callback, method)

    def _source_traceback(self) -> Any:
        return format_helpers.extract_stack(sys._getframe(1))

    def _callback_failed(self, handle: Any, exc: BaseException) -> None:
        """A callback has raised: as ``asyncio.Handle._run`` reports it."""
        context: dict[str, Any] = {"exception": exc}
        if handle is None:
            context["message"] = "Exception in a transport's callback"
        else:
            source = _format_source(handle._callback, handle._args, self.get_debug())
            context["message"] = f"Exception in callback {source}"
            context["handle"] = handle
            if handle._source_traceback:
                context["source_traceback"] = handle._source_traceback
        self.call_exception_handler(context)

    def _run_in_debug(self, handle: Any) -> None:
        """Run a callback and log it if it was slow: as ``BaseEventLoop._run_once`` does in debug mode."""
        if handle._cancelled:
            return
        try:
            self._current_handle = handle
            start = self.time()
            handle._run()
            duration = self.time() - start
            if duration >= self.slow_callback_duration:
                logger.warning(
                    "Executing %s took %.3f seconds",
                    base_events._format_handle(handle),  # type: ignore[attr-defined]
                    duration,
                )
        finally:
            self._current_handle = None
            handle = None  # breaks the cycle through this frame when the callback's exception is kept

    # -- transports ----------------------------------------------------------------------------------------

    def _make_socket_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        *,
        extra: dict[str, Any] | None = None,
        server: Any = None,
    ) -> SocketTransport:
        self._ensure_fd_no_transport(sock)
        return SocketTransport(self, sock, protocol, waiter, extra, server)

    def _make_ssl_transport(
        self,
        rawsock: socket.socket,
        protocol: asyncio.BaseProtocol,
        sslcontext: Any,
        waiter: asyncio.Future[None] | None = None,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        ssl_handshake_timeout: float | None = constants.SSL_HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout: float | None = constants.SSL_SHUTDOWN_TIMEOUT,
    ) -> Any:
        self._ensure_fd_no_transport(rawsock)
        if self.native_streams and not self.get_debug():
            streams.adopt(protocol)
        make: Any = sslproto.SSLProtocol  # typeshed has an older signature
        ssl_protocol = make(
            self,
            protocol,
            sslcontext,
            waiter,
            server_side,
            server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )
        SocketTransport(self, rawsock, ssl_protocol, extra=extra, server=server)
        return ssl_protocol._app_transport

    def _accept_connection(
        self,
        protocol_factory: Any,
        sock: socket.socket,
        sslcontext: Any = None,
        server: Any = None,
        backlog: int = 100,
        *more: Any,
    ) -> None:
        if sslcontext or self.get_debug() or type(sock) is not socket.socket:
            inherited: Any = super()
            inherited._accept_connection(protocol_factory, sock, sslcontext, server, backlog, *more)
        else:
            accepting.accept(self, protocol_factory, sock, server, backlog, more)

    def _make_datagram_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        address: Any = None,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Any:
        if not datagram.is_native(sock):
            make: Any = super()
            return make._make_datagram_transport(sock, protocol, address, waiter, extra)
        self._ensure_fd_no_transport(sock)
        return datagram.DatagramTransport(self, sock, protocol, address, waiter, extra)

    async def _make_subprocess_transport(
        self,
        protocol: Any,
        args: Any,
        shell: bool,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        bufsize: int,
        extra: Any = None,
        **kwargs: Any,
    ) -> Any:
        if children.program_has_its_own():
            inherited: Any = super()
            return await inherited._make_subprocess_transport(
                protocol, args, shell, stdin, stdout, stderr, bufsize, extra=extra, **kwargs
            )
        started = self.create_future()
        make: Any = unix_events._UnixSubprocessTransport  # type: ignore[attr-defined]
        transport = make(
            self, protocol, args, shell, stdin, stdout, stderr, bufsize, started, extra=extra, **kwargs
        )
        self._children.watch(transport.get_pid(), self._child_watcher_callback, transport)
        try:
            await started
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            transport.close()
            await transport._wait()
            raise
        return transport


def new_event_loop() -> Loop:
    """Make a new loop: for ``asyncio.Runner(loop_factory=headrace.new_event_loop)``."""
    return Loop()


def run(main: Coroutine[Any, Any, _T], *, debug: bool | None = None) -> _T:
    """Run a coroutine on a new Headrace loop: ``asyncio.run`` in one word.

    :param main: the coroutine.
    :param debug: asyncio's debug mode; by default as ``PYTHONASYNCIODEBUG`` and ``-X dev`` say.
    :returns: what the coroutine returns.
    """
    with asyncio.Runner(debug=debug, loop_factory=new_event_loop) as runner:
        return runner.run(main)


if sys.version_info < (3, 16):
    with warnings.catch_warnings():
        # Reading the base class warns from 3.14 on; whoever uses ours is warned then.
        warnings.simplefilter("ignore", DeprecationWarning)
        _Policy: Any = asyncio.DefaultEventLoopPolicy

    class EventLoopPolicy(_Policy):  # type: ignore[misc]
        """An event loop policy that makes Headrace loops. CPython deprecates policies from 3.14 on."""

        def _loop_factory(self) -> Loop:
            return new_event_loop()

    def install() -> None:
        """Make Headrace loops the default of this process.

        Deprecated with CPython's policies: prefer :func:`run`, or a ``loop_factory``.
        """
        if sys.version_info >= (3, 12):
            warnings.warn(
                "headrace.install() is deprecated in favor of headrace.run()",
                DeprecationWarning,
                stacklevel=2,
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            asyncio.set_event_loop_policy(EventLoopPolicy())
