//! Writing: what one callback writes goes out in one system call when it returns. What the kernel does not
//! take waits for it.

use std::collections::VecDeque;
use std::io::IoSlice;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, send, sendmsg, shutdown};

use super::super::errors::os_error;
use super::channel::Channel;
use super::channel_of;
use crate::ffi::bytes::Lent;
use crate::ffi::descriptor;

/// So much is sent at once, without waiting for the callback to return: a longer wait would only cost memory.
const SEND_NOW: usize = 64 * 1024;
/// Pieces sent in one system call; the kernel takes up to 1024.
const PIECES: usize = 64;

/// What is yet to be sent, in order. Pieces are immutable: other buffers are copied when they are written.
#[derive(Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Py<PyBytes>>,
    /// How much of the first piece is sent already.
    sent_of_first: usize,
    length: usize,
}

impl Outgoing {
    /// Bytes that are yet to be sent.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    fn push(&mut self, piece: Py<PyBytes>, length: usize) {
        self.length += length;
        self.pieces.push_back(piece);
    }

    /// Forget the first piece, or the part of it, that lies within `count` sent bytes. Gives the piece back when
    /// it is done with; takes what it accounted for off `count`.
    fn advance(&mut self, py: Python<'_>, count: &mut usize) -> Option<Py<PyBytes>> {
        let left = self.pieces.front()?.as_bytes(py).len() - self.sent_of_first;
        let sent = left.min(*count);
        *count -= sent;
        self.length -= sent;
        if sent < left {
            self.sent_of_first += sent;
            return None;
        }
        self.sent_of_first = 0;
        self.pieces.pop_front()
    }

    /// Send what the kernel takes, with one system call.
    fn send(&self, py: Python<'_>, fd: i32) -> rustix::io::Result<usize> {
        let fd = descriptor::borrowed(fd);
        let Some(first) = self.pieces.front() else { return Ok(0) };
        let first = &first.as_bytes(py)[self.sent_of_first..];
        if self.pieces.len() == 1 {
            return send(fd, first, SendFlags::NOSIGNAL);
        }
        let mut slices = [IoSlice::new(&[]); PIECES];
        let count = self.pieces.len().min(PIECES);
        slices[0] = IoSlice::new(first);
        for (slice, piece) in slices.iter_mut().zip(&self.pieces).take(count).skip(1) {
            *slice = IoSlice::new(piece.as_bytes(py));
        }
        sendmsg(fd, &slices[..count], &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
    }
}

/// The bytes to send for `data`: itself when it is immutable, a copy of it otherwise.
///
/// Fails with `TypeError` for what is no bytes, bytearray or memoryview.
pub(super) fn snapshot<'py>(data: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = data.cast_exact::<PyBytes>() {
        return Ok(bytes.to_owned());
    }
    let known = data.is_instance_of::<PyBytes>()
        || data.is_instance_of::<PyByteArray>()
        || data.is_instance_of::<PyMemoryView>();
    if !known {
        return Err(PyTypeError::new_err(format!(
            "data argument must be a bytes-like object, not '{}'",
            data.get_type().name()?
        )));
    }
    copy(&data)
}

fn copy<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    match Lent::readable(data) {
        Ok(lent) => Ok(PyBytes::new(data.py(), lent.content())),
        // A view that is not contiguous: Python gathers it.
        Err(_) => Ok(data.call_method0("tobytes")?.cast_into()?),
    }
}

/// What must hold before anything may be written; `false` when the connection is lost and data is dropped.
fn may_write(transport: &Bound<'_, PyAny>, channel: &Channel, method: &str) -> PyResult<()> {
    if channel.eof_written.get() {
        return Err(pyo3::exceptions::PyRuntimeError::new_err(format!(
            "Cannot call {method}() after write_eof()"
        )));
    }
    if channel.empty_waiter.borrow().is_some() {
        let verb = if method == "write" { "write" } else { "writelines" };
        return Err(pyo3::exceptions::PyRuntimeError::new_err(format!(
            "unable to {verb}; sendfile is in progress"
        )));
    }
    let _ = transport;
    Ok(())
}

/// Count a write to a lost connection; the transport warns when there are many.
fn dropped(transport: &Bound<'_, PyAny>, channel: &Channel) -> PyResult<bool> {
    if channel.lost.get() == 0 {
        return Ok(false);
    }
    transport.call_method1("_write_to_lost", (channel.lost.get(),))?;
    channel.lost.set(channel.lost.get() + 1);
    Ok(true)
}

/// `write(data)`.
pub(crate) fn write(
    transport: &Bound<'_, PyAny>,
    channel: &Channel,
    data: Borrowed<'_, '_, PyAny>,
) -> PyResult<()> {
    let piece = snapshot(data)?;
    may_write(transport, channel, "write")?;
    let length = piece.as_bytes().len();
    if length == 0 || dropped(transport, channel)? {
        return Ok(());
    }
    channel.outgoing.borrow_mut().push(piece.unbind(), length);
    written(transport, channel)
}

/// `writelines(parts)`: as one write of all of them.
pub(super) fn write_lines(
    transport: &Bound<'_, PyAny>,
    channel: &Channel,
    parts: Borrowed<'_, '_, PyAny>,
) -> PyResult<()> {
    may_write(transport, channel, "writelines")?;
    let mut pieces = Vec::new();
    for part in parts.try_iter()? {
        let part = part?;
        let piece = match part.cast_exact::<PyBytes>() {
            Ok(bytes) => bytes.clone(),
            // Anything with a buffer: asyncio makes a memoryview of each part.
            Err(_) => copy(&part).map_err(|_| not_a_buffer(&part))?,
        };
        if !piece.as_bytes().is_empty() {
            pieces.push(piece);
        }
    }
    if pieces.is_empty() || dropped(transport, channel)? {
        return Ok(());
    }
    {
        let mut outgoing = channel.outgoing.borrow_mut();
        for piece in pieces {
            let length = piece.as_bytes().len();
            outgoing.push(piece.unbind(), length);
        }
    }
    written(transport, channel)
}

fn not_a_buffer(part: &Bound<'_, PyAny>) -> PyErr {
    let name = part.get_type().name().map(|n| n.to_string()).unwrap_or_default();
    PyTypeError::new_err(format!("memoryview: a bytes-like object is required, not '{name}'"))
}

/// Something was added to what is to be sent: now, or when the running callback returns.
fn written(transport: &Bound<'_, PyAny>, channel: &Channel) -> PyResult<()> {
    if channel.blocked.get() {
        return channel.maybe_pause_protocol(transport);
    }
    let core = channel.core(transport.py())?;
    let core = core.get();
    let later = core.in_callback.get() && !channel.immediate.get();
    if later && channel.outgoing.borrow().len() < SEND_NOW {
        if !channel.dirty.replace(true) {
            core.dirty.borrow_mut().push_back(transport.clone().unbind());
        }
        return Ok(());
    }
    flush(transport, channel)
}

/// The callback that wrote has returned: send.
pub(crate) fn flush_transport(transport: &Bound<'_, PyAny>) -> PyResult<()> {
    let channel = channel_of(transport.as_borrowed())?;
    channel.get().dirty.set(false);
    flush(transport, channel.get())
}

/// Send what waits, unless the kernel is known to be full.
pub(super) fn flush(transport: &Bound<'_, PyAny>, channel: &Channel) -> PyResult<()> {
    if channel.blocked.get() || channel.lost.get() != 0 || channel.outgoing.borrow().len() == 0 {
        return Ok(());
    }
    match send_all(transport, channel) {
        Ok(true) => Ok(()),
        Ok(false) => {
            channel.blocked.set(true);
            channel.update_interest(transport)?;
            channel.maybe_pause_protocol(transport)
        }
        Err(error) => write_failed(transport, channel, error),
    }
}

/// Send until everything is sent (`true`) or the kernel takes no more.
fn send_all(transport: &Bound<'_, PyAny>, channel: &Channel) -> rustix::io::Result<bool> {
    let py = transport.py();
    loop {
        let outcome = channel.outgoing.borrow().send(py, channel.fd);
        let count = match outcome {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(error),
        };
        let more = channel.outgoing.borrow().pieces.len() > PIECES;
        let mut unaccounted = count;
        while unaccounted > 0 {
            // The borrow ends before the piece is dropped.
            let done = channel.outgoing.borrow_mut().advance(py, &mut unaccounted);
            drop(done);
        }
        if channel.outgoing.borrow().len() == 0 {
            return Ok(true);
        }
        // Less was taken than was offered: the kernel is full. Otherwise there were more pieces than fit.
        if !more {
            return Ok(false);
        }
    }
}

fn write_failed(transport: &Bound<'_, PyAny>, channel: &Channel, error: Errno) -> PyResult<()> {
    let py = transport.py();
    let error = os_error(py, &error.into());
    let pieces = channel.outgoing.take();
    drop(pieces);
    channel.blocked.set(false);
    let waiter = channel.empty_waiter.borrow().as_ref().map(|w| w.bind(py).clone());
    let value = error.value(py).clone();
    channel.fatal_error(transport, error, "Fatal write error on socket transport")?;
    if let Some(waiter) = waiter {
        waiter.call_method1("set_exception", (value,))?;
    }
    Ok(())
}

/// Readiness to write: go on with what the kernel had not taken.
pub(super) fn ready(transport: &Bound<'_, PyAny>, channel: &Channel) -> PyResult<()> {
    if channel.lost.get() != 0 {
        return Ok(());
    }
    let py = transport.py();
    channel.in_context(py, || {
        match send_all(transport, channel) {
            Ok(_) => {}
            Err(error) => return write_failed(transport, channel, error),
        }
        channel.maybe_resume_protocol(transport)?;
        // The protocol may have written more.
        if channel.outgoing.borrow().len() > 0 || !channel.blocked.get() {
            return Ok(());
        }
        channel.blocked.set(false);
        channel.update_interest(transport)?;
        let waiter = channel.empty_waiter.borrow().as_ref().map(|w| w.bind(py).clone());
        if let Some(waiter) = waiter {
            waiter.call_method1("set_result", (py.None(),))?;
        }
        if channel.closing.get() {
            transport.call_method1("_call_connection_lost", (py.None(),))?;
        } else if channel.eof_written.get() {
            shut_down_writing(transport, channel)?;
        }
        Ok(())
    })
}

/// Tell the peer that nothing more will be sent.
pub(super) fn shut_down_writing(transport: &Bound<'_, PyAny>, channel: &Channel) -> PyResult<()> {
    shutdown(descriptor::borrowed(channel.fd), Shutdown::Write)
        .map_err(|error| os_error(transport.py(), &error.into()))
}
