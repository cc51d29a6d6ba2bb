"""Native readers for ``asyncio.start_server`` and ``open_connection``, with no change in user code.

Where a connection's protocol and reader are exactly the standard library's own, untouched, two things happen
before the user's callback runs:

1. the transport feeds the reader without calling the protocol (what is read lies in the reader's ``_buffer``);
2. the reader gets the class below, whose ``read``, ``readline``, ``readexactly`` and ``readuntil`` are native,
   and so does a server's writer, with ``write`` and ``drain``. These classes add no attribute, so the change of
   class is one that CPython allows, and ``isinstance`` keeps holding.

Subclasses, and classes that somebody has patched, get the plain path; so does all of debug mode, and a loop
made with ``native_streams=False``. The modules of asyncio are never touched. The state that asyncio's methods keep
in attributes of the reader (``_buffer``, ``_waiter``, …) is kept natively; descriptors of the same names show it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from headrace import _native


class StreamReader(asyncio.StreamReader):
    """``asyncio.StreamReader`` with native read methods."""

    __slots__ = ()


class StreamWriter(asyncio.StreamWriter):
    """``asyncio.StreamWriter`` with native ``write`` and ``drain``."""

    __slots__ = ()


_native._define_reader(StreamReader)
_native._define_writer(StreamWriter)

_READER_METHODS = (
    *("read", "readline", "readexactly", "readuntil", "_wait_for_data", "_maybe_resume_transport"),
    *("feed_data", "feed_eof", "_wakeup_waiter", "set_exception", "exception", "set_transport", "at_eof"),
)
_WRITER_METHODS = ("write", "drain", "_wait_for_drain")
_PROTOCOL_METHODS = (
    *("data_received", "eof_received", "connection_made", "connection_lost", "_stream_reader"),
    *("pause_writing", "resume_writing", "_drain_helper"),
)


def _methods(cls: type, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(getattr(cls, name, None) for name in names)


_PLAIN_READER = _methods(asyncio.StreamReader, _READER_METHODS)
_PLAIN_WRITER = _methods(asyncio.StreamWriter, _WRITER_METHODS)
_PLAIN_PROTOCOL = _methods(asyncio.StreamReaderProtocol, _PROTOCOL_METHODS)


def _untouched(instance: Any, names: tuple[str, ...]) -> bool:
    return not any(name in vars(instance) for name in names)


class _Connected:
    """Stands before a server's ``client_connected_cb`` and makes the writer native."""

    def __init__(self, callback: Any) -> None:
        self.callback = callback

    def __call__(self, reader: Any, writer: Any) -> Any:
        plain = type(writer) is asyncio.StreamWriter and _untouched(writer, _WRITER_METHODS)
        if (
            plain
            and writer._reader is reader
            and _methods(asyncio.StreamWriter, _WRITER_METHODS) == _PLAIN_WRITER
        ):
            writer.__class__ = StreamWriter
        return self.callback(reader, writer)


def adopt(protocol: Any) -> Any:
    """Make the reader of a plain stream protocol native.

    :returns: the weak reference to the reader that its transport may feed natively; ``None`` where the protocol,
        or its reader, is not plain.
    """
    if type(protocol) is not asyncio.StreamReaderProtocol or not _untouched(protocol, _PROTOCOL_METHODS):
        return None
    reference = protocol._stream_reader_wr  # type: ignore[attr-defined]
    reader = None if reference is None else reference()
    if type(reader) is not asyncio.StreamReader and type(reader) is not StreamReader:
        return None
    if (
        not _untouched(reader, _READER_METHODS)
        or _methods(asyncio.StreamReader, _READER_METHODS) != _PLAIN_READER
        or _methods(asyncio.StreamReaderProtocol, _PROTOCOL_METHODS) != _PLAIN_PROTOCOL
    ):
        return None
    reader.__class__ = StreamReader
    callback = protocol._client_connected_cb  # type: ignore[attr-defined]
    if callback is not None and not isinstance(callback, _Connected):
        protocol._client_connected_cb = _Connected(callback)  # type: ignore[attr-defined]
    return reference
