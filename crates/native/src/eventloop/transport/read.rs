//! Reading: one `recv` for each event. A short read proves that the socket is drained, and after a full one
//! the poller reports it again, so there is never a second `recv` that ends in `EAGAIN`.

use std::mem::MaybeUninit;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::super::core::{LoopCore, READ_BUFFER};
use super::super::errors::os_error;
use super::super::reader::ReaderState;
use super::channel::Channel;
use super::{stream, tls};
use crate::ffi::bytes::{self, Lent};
use crate::ffi::descriptor;

/// Reads of this size go straight into the final object: copying costs more than asking for the size.
const BULK: usize = 64 * 1024;

/// What one read gave.
pub(super) enum Received<'py> {
    Nothing,
    End,
    Data(Bound<'py, PyBytes>),
    Failed(PyErr),
}

fn receive(fd: i32, space: &mut [MaybeUninit<u8>]) -> rustix::io::Result<usize> {
    recv(descriptor::borrowed(fd), space, RecvFlags::empty()).map(|(_, count)| count)
}

/// Readiness to read: hand what there is to the protocol.
pub(super) fn ready(core: &LoopCore, transport: &Bound<'_, PyAny>, channel: &Channel) -> PyResult<()> {
    if channel.lost.get() != 0 || channel.closing.get() {
        return Ok(());
    }
    let py = transport.py();
    channel.in_context(py, || {
        let session = channel.tls.borrow().as_ref().map(|session| session.bind(py).clone());
        if let Some(session) = session {
            return tls::ready(core, transport, channel, session.get());
        }
        if channel.buffered.get() {
            return ready_buffered(transport, channel);
        }
        if let Some((reader, state)) = stream::reader_of(py, channel) {
            return ready_stream(core, transport, channel, &reader, state.get());
        }
        match read(py, core, channel)? {
            Received::Nothing => Ok(()),
            Received::Data(data) => deliver(transport, channel, &data),
            Received::End => ended(transport, channel),
            Received::Failed(error) => {
                channel.fatal_error(transport, error, "Fatal read error on socket transport")
            }
        }
    })
}

/// Call the protocol's `data_received`.
fn deliver(transport: &Bound<'_, PyAny>, channel: &Channel, data: &Bound<'_, PyBytes>) -> PyResult<()> {
    let py = transport.py();
    let Some(protocol) = channel.protocol(py) else { return Ok(()) };
    match protocol.call_method1(pyo3::intern!(py, "data_received"), (data,)) {
        Ok(_) => Ok(()),
        Err(error) => {
            channel.fatal_error(transport, error, "Fatal error: protocol.data_received() call failed.")
        }
    }
}

/// Readiness to read, where the protocol is a plain stream protocol.
fn ready_stream(
    core: &LoopCore,
    transport: &Bound<'_, PyAny>,
    channel: &Channel,
    reader: &Bound<'_, PyAny>,
    state: &ReaderState,
) -> PyResult<()> {
    let py = transport.py();
    let outcome = if channel.bulk.get() {
        read_bulk(py, channel)?
    } else {
        // Out of its cell: feeding may run Python code.
        let mut buffer = core.read_buffer.take();
        let outcome = fill(&mut buffer, channel.fd);
        let fed = match outcome {
            Ok(0) => Ok(Received::End),
            Ok(count) => {
                channel.bulk.set(count >= BULK);
                core.fed.set(core.fed.get() + count);
                match stream::feed(reader, state, &buffer) {
                    Ok(true) => Ok(Received::Nothing),
                    Ok(false) => Ok(Received::Data(PyBytes::new(py, &buffer))),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Ok(failed(py, error)),
        };
        core.read_buffer.replace(buffer);
        match fed {
            Ok(Received::Data(data)) => return deliver(transport, channel, &data),
            Ok(other) => other,
            Err(error) => {
                return channel.fatal_error(
                    transport,
                    error,
                    "Fatal error: protocol.data_received() call failed.",
                );
            }
        }
    };
    match outcome {
        Received::Nothing => Ok(()),
        Received::Data(data) => {
            channel.bulk.set(data.as_bytes().len() >= BULK);
            core.fed.set(core.fed.get() + data.as_bytes().len());
            if stream::hand_over(state, &data)? {
                return Ok(());
            }
            deliver(transport, channel, &data)
        }
        Received::End => ended(transport, channel),
        Received::Failed(error) => {
            channel.fatal_error(transport, error, "Fatal read error on socket transport")
        }
    }
}

fn read<'py>(py: Python<'py>, core: &LoopCore, channel: &Channel) -> PyResult<Received<'py>> {
    let outcome =
        if channel.bulk.get() { read_bulk(py, channel)? } else { read_shared(py, core, channel.fd) };
    if let Received::Data(data) = &outcome {
        channel.bulk.set(data.as_bytes().len() >= BULK);
    }
    Ok(outcome)
}

/// Into the loop's buffer, then into a `bytes` of the exact size.
fn read_shared<'py>(py: Python<'py>, core: &LoopCore, fd: i32) -> Received<'py> {
    let mut buffer = core.read_buffer.borrow_mut();
    if buffer.capacity() == 0 {
        buffer.reserve_exact(READ_BUFFER);
    }
    buffer.clear();
    let count =
        recv(descriptor::borrowed(fd), rustix::buffer::spare_capacity(&mut buffer), RecvFlags::empty());
    match count {
        Ok((0, _)) => Received::End,
        Ok(_) => Received::Data(PyBytes::new(py, &buffer)),
        Err(error) => failed(py, error),
    }
}

/// Read once into an empty `buffer` of [`READ_BUFFER`] bytes.
pub(super) fn fill(buffer: &mut Vec<u8>, fd: i32) -> rustix::io::Result<usize> {
    buffer.clear();
    if buffer.capacity() < READ_BUFFER {
        buffer.reserve_exact(READ_BUFFER);
    }
    recv(descriptor::borrowed(fd), rustix::buffer::spare_capacity(buffer), RecvFlags::empty())
        .map(|(_, count)| count)
}

/// Straight into a `bytes` of the size that the kernel says is there.
fn read_bulk<'py>(py: Python<'py>, channel: &Channel) -> PyResult<Received<'py>> {
    let waiting = rustix::io::ioctl_fionread(descriptor::borrowed(channel.fd)).unwrap_or(0);
    let size = usize::try_from(waiting).unwrap_or(READ_BUFFER).clamp(1, READ_BUFFER);
    Ok(match bytes::filled(py, size, |space| receive(channel.fd, space))? {
        Ok(data) if data.as_bytes().is_empty() => Received::End,
        Ok(data) => Received::Data(data),
        Err(error) => failed(py, error),
    })
}

pub(super) fn failed<'py>(py: Python<'_>, error: Errno) -> Received<'py> {
    match error {
        Errno::AGAIN | Errno::INTR => Received::Nothing,
        error => Received::Failed(os_error(py, &error.into())),
    }
}

/// Into the buffer that the protocol lends.
fn ready_buffered(transport: &Bound<'_, PyAny>, channel: &Channel) -> PyResult<()> {
    let py = transport.py();
    let Some(protocol) = channel.protocol(py) else { return Ok(()) };
    let lent = protocol.call_method1(pyo3::intern!(py, "get_buffer"), (-1,)).and_then(|buffer| {
        let lent = Lent::writable(&buffer)?;
        if lent.len() == 0 {
            return Err(PyRuntimeError::new_err("get_buffer() returned an empty buffer"));
        }
        Ok(lent)
    });
    let mut lent = match lent {
        Ok(lent) => lent,
        Err(error) => {
            return channel.fatal_error(transport, error, "Fatal error: protocol.get_buffer() call failed.");
        }
    };
    let outcome = receive(channel.fd, lent.space());
    drop(lent);
    match outcome {
        Ok(0) => ended(transport, channel),
        Ok(count) => match protocol.call_method1(pyo3::intern!(py, "buffer_updated"), (count,)) {
            Ok(_) => Ok(()),
            Err(error) => {
                channel.fatal_error(transport, error, "Fatal error: protocol.buffer_updated() call failed.")
            }
        },
        Err(error) => match failed(py, error) {
            Received::Failed(error) => {
                channel.fatal_error(transport, error, "Fatal read error on socket transport")
            }
            _ => Ok(()),
        },
    }
}

/// The peer will send no more: the protocol says whether the connection stays half open.
pub(super) fn ended(transport: &Bound<'_, PyAny>, channel: &Channel) -> PyResult<()> {
    let py = transport.py();
    let Some(protocol) = channel.protocol(py) else { return Ok(()) };
    let keep_open =
        protocol.call_method0(pyo3::intern!(py, "eof_received")).and_then(|keep_open| keep_open.is_truthy());
    match keep_open {
        Ok(true) => {
            channel.read_ended.set(true);
            channel.update_interest(transport)
        }
        Ok(false) => super::methods::close(transport, channel),
        Err(error) => {
            channel.fatal_error(transport, error, "Fatal error: protocol.eof_received() call failed.")
        }
    }
}
