"""Native TLS, with no change in user code: asyncio's own protocol, and what runs for each message in Rust.

Where the protocol of one of our transports is ``asyncio.sslproto.SSLProtocol``, untouched, it and its transport
get the classes below. They add no state and change no behaviour: handshake, shutdown, timeouts, flow control and
errors stay asyncio's, so they follow CPython. Native are the way from the socket through OpenSSL to the application,
and back. So whatever makes such a protocol gets it: servers, ``create_connection`` and ``start_tls``.

Subclasses, classes that somebody has patched, ``SSLContext.sslobject_class``, TLS over a transport that is not
ours (TLS in TLS, say) and debug mode get asyncio's plain path.
"""

from __future__ import annotations

import operator
import os
import ssl
import sys
from asyncio import sslproto
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import _native, streams

if TYPE_CHECKING:  # private, and so not in typeshed
    _Transport: Any
    _Protocol: Any
else:
    _Transport = sslproto._SSLProtocolTransport
    _Protocol = sslproto.SSLProtocol

_State = sslproto.SSLProtocolState
_SSLSocket = sys.modules["_ssl"]._SSLSocket


#: The attributes that decide whether data goes its usual way, and what they are then.
_USUAL: dict[str, Callable[[Any], bool]] = {
    "_state": lambda state: state is _State.WRAPPED,
    "_app_protocol_is_buffer": operator.not_,
    "_app_reading_paused": operator.not_,
    "_app_writing_paused": operator.not_,
    "_ssl_reading_paused": operator.not_,
    "_ssl_writing_paused": operator.not_,
    "_incoming_high_water": bool,
    "_outgoing_high_water": bool,
}


def _is_usual(attributes: dict[str, Any]) -> bool:
    return all(usual(attributes[name]) for name, usual in _USUAL.items())


def _watched(name: str) -> property:
    """An attribute of the protocol whose changes the native half learns of."""

    def read(self: Any) -> Any:
        return vars(self)[name]

    def write(self: Any, value: Any) -> None:
        vars(self)[name] = value
        self._session.usual = _is_usual(vars(self))

    return property(read, write)


class SSLTransport(_Transport):  # type: ignore[misc]
    """asyncio's TLS transport with native ``write`` and ``writelines``."""

    __slots__ = ()


class SSLProtocol(_Protocol):  # type: ignore[misc]
    """asyncio's TLS protocol with a native way from the socket to the application."""

    __slots__ = ()

    #: What the inherited code asks OpenSSL for at once: a record. (asyncio: 256 KiB.)
    max_size = 16 * 1024

    _session: _native.TlsSession

    def _set_app_protocol(self, app_protocol: Any) -> None:
        super()._set_app_protocol(app_protocol)
        self._session.set_reader(_reader(self, app_protocol))

    def _bytes_arrived(self) -> None:
        """Go on with what the peer has sent, outside of the usual case: ``buffer_updated`` without its copying."""
        state = self._state
        if state is _State.DO_HANDSHAKE:
            self._do_handshake()
        elif state is _State.WRAPPED:
            self._do_read()
        elif state is _State.FLUSHING:
            self._do_flush()
        elif state is _State.SHUTDOWN:
            self._do_shutdown()


for _name in _USUAL:
    setattr(SSLProtocol, _name, _watched(_name))


#: What must be asyncio's own: the methods that native code replaces, calls around, or calls in another order.
_PROTOCOL_METHODS = (
    *(
        "get_buffer",
        "buffer_updated",
        "_set_app_protocol",
        "_do_read",
        "_do_read__copied",
        "_do_read__buffered",
    ),
    *("_write_appdata", "_do_write", "_process_outgoing", "_control_app_writing", "_control_ssl_reading"),
    *("_do_handshake", "_do_flush", "_do_shutdown", "_fatal_error", "_call_eof_received", "_start_shutdown"),
)
_TRANSPORT_METHODS = ("write", "writelines")
_SSL_OBJECT_METHODS = ("read", "write")


def _methods(cls: type, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(cls.__dict__.get(name) for name in names)


def _plain() -> tuple[Any, ...]:
    return (
        *_methods(_Protocol, _PROTOCOL_METHODS),
        *_methods(_Transport, _TRANSPORT_METHODS),
        *_methods(ssl.SSLObject, _SSL_OBJECT_METHODS),
    )


_PLAIN = _plain()
#: Whether this CPython's protocol is as ours expects it.
_KNOWN = None not in _PLAIN


def _untouched(instance: Any, names: tuple[str, ...]) -> bool:
    return not any(name in vars(instance) for name in names)


def _reader(protocol: Any, app_protocol: Any) -> Any:
    native = getattr(protocol._loop, "native_streams", False) and not protocol._loop.get_debug()
    return streams.adopt(app_protocol) if native else None


def adopt(protocol: Any) -> _native.TlsSession | None:
    """Make a plain TLS protocol, and its transport, native.

    :returns: its session, which the transport under it reads by; ``None`` where it is no TLS protocol, or not plain.
    """
    if type(protocol) is SSLProtocol:
        return protocol._session
    if type(protocol) is not _Protocol or not _KNOWN or _plain() != _PLAIN:
        return None
    transport, ssl_object = protocol._app_transport, protocol._sslobj
    if (
        type(transport) is not _Transport
        or type(ssl_object) is not ssl.SSLObject
        or type(ssl_object._sslobj) is not _SSLSocket  # type: ignore[attr-defined]
        or type(protocol._incoming) is not ssl.MemoryBIO
        or type(protocol._outgoing) is not ssl.MemoryBIO
        or not _untouched(protocol, _PROTOCOL_METHODS)
        or not _untouched(transport, _TRANSPORT_METHODS)
        or not _untouched(ssl_object, _SSL_OBJECT_METHODS)
    ):
        return None
    connection = ssl_object._sslobj  # type: ignore[attr-defined]
    backlog = protocol._write_backlog
    session = _native.TlsSession(connection, protocol._incoming, protocol._outgoing, backlog)
    session.set_reader(_reader(protocol, protocol._app_protocol))
    # asyncio's buffer of 256 KiB for each connection: what is received goes by the loop's own.
    protocol._ssl_buffer = bytearray()
    protocol._ssl_buffer_view = memoryview(protocol._ssl_buffer)
    protocol._session = session
    session.usual = _is_usual(vars(protocol))
    protocol.__class__ = SSLProtocol
    transport.__class__ = SSLTransport
    return session


def _finder() -> Callable[[str], int]:
    """What finds the address of a function in the OpenSSL that ``_ssl`` is linked to; 0: it is not to be had."""
    known = sys.implementation.name == "cpython" and sys.version_info < (3, 15)
    path = getattr(sys.modules.get("_ssl"), "__file__", None)
    if not known or path is None or os.environ.get("HEADRACE_TLS") == "methods":
        return lambda name: 0
    try:
        import ctypes

        library = ctypes.CDLL(path)
    except (ImportError, OSError):
        return lambda name: 0

    def find(name: str) -> int:
        function = getattr(library, name, None)  # an attribute only where the library has it
        return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0

    return find


_native._define_tls(SSLProtocol, SSLTransport, _finder())
