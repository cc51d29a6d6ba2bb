//! Feeding a plain `asyncio.StreamReader` without its protocol in between.
//!
//! Where a read waits on an empty buffer, what it asked for goes straight to it; the rest goes into the
//! reader's own `_buffer`, where asyncio keeps it too.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyWeakrefMethods, PyWeakrefReference};

use super::super::futures;
use super::channel::Channel;
use crate::ffi::bytes;

/// What a waiting read would take of new data, if its buffer is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Want {
    /// No read waits, or none that can be handed data.
    #[default]
    Nothing,
    /// Up to so many bytes.
    AtMost(usize),
    /// Exactly so many.
    Exactly(usize),
    /// A line, its end within so many bytes.
    Line(usize),
}

impl Want {
    /// How much of `data` it takes.
    fn of(self, data: &[u8]) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::AtMost(limit) => Some(data.len().min(limit)),
            Self::Exactly(count) => (data.len() >= count).then_some(count),
            Self::Line(limit) => memchr::memchr(b'\n', data).filter(|at| *at <= limit).map(|at| at + 1),
        }
    }
}

/// Between a transport and the read that waits on its reader.
#[derive(Debug, Default)]
pub(crate) struct Handoff {
    pub(crate) want: Cell<Want>,
    /// What was handed over and has not been picked up.
    pub(crate) bytes: RefCell<Option<Py<PyBytes>>>,
}

/// The reader of a plain stream protocol, fed natively.
pub(super) struct Stream {
    /// `StreamReaderProtocol._stream_reader_wr`: the reader may be collected while the connection lives.
    pub(super) reader: Py<PyAny>,
    pub(super) handoff: Rc<Handoff>,
}

/// Give `data` to the reader. Returns false when the reader is not as it should be, and the protocol must do it.
pub(super) fn feed(
    transport: &Bound<'_, PyAny>,
    reader: &Bound<'_, PyAny>,
    handoff: &Handoff,
    data: &[u8],
) -> PyResult<bool> {
    let py = transport.py();
    let buffer = reader.getattr(pyo3::intern!(py, "_buffer"))?;
    let Ok(buffer) = buffer.cast_exact::<PyByteArray>() else { return Ok(false) };
    let mut rest = data;
    if buffer.is_empty()
        && handoff.bytes.borrow().is_none()
        && let Some(count) = handoff.want.get().of(data)
    {
        handoff.want.set(Want::Nothing);
        let taken = PyBytes::new(py, &data[..count]).unbind();
        handoff.bytes.replace(Some(taken));
        rest = &data[count..];
    }
    if !rest.is_empty() {
        bytes::append(buffer, rest)?;
    }
    wake(reader)?;
    if !rest.is_empty() {
        pause_if_full(transport, reader, buffer.len())?;
    }
    Ok(true)
}

/// Hand a whole `bytes` over, if a read waits for that much on an empty buffer.
pub(super) fn hand_over(
    reader: &Bound<'_, PyAny>,
    handoff: &Handoff,
    data: &Bound<'_, PyBytes>,
) -> PyResult<bool> {
    let py = reader.py();
    let length = data.as_bytes().len();
    if handoff.want.get().of(data.as_bytes()) != Some(length) || handoff.bytes.borrow().is_some() {
        return Ok(false);
    }
    let buffer = reader.getattr(pyo3::intern!(py, "_buffer"))?;
    if !buffer.cast_exact::<PyByteArray>().is_ok_and(|buffer| buffer.is_empty()) {
        return Ok(false);
    }
    handoff.want.set(Want::Nothing);
    handoff.bytes.replace(Some(data.clone().unbind()));
    wake(reader)?;
    Ok(true)
}

/// `StreamReader._wakeup_waiter`.
fn wake(reader: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = reader.py();
    let waiter = reader.getattr(pyo3::intern!(py, "_waiter"))?;
    if waiter.is_none() {
        return Ok(());
    }
    reader.setattr(pyo3::intern!(py, "_waiter"), py.None())?;
    futures::complete(&waiter)
}

/// The end of `StreamReader.feed_data`: twice the limit is as much as may pile up.
fn pause_if_full(transport: &Bound<'_, PyAny>, reader: &Bound<'_, PyAny>, length: usize) -> PyResult<()> {
    let py = transport.py();
    let limit: usize = reader.getattr(pyo3::intern!(py, "_limit"))?.extract()?;
    if length <= 2 * limit
        || reader.getattr(pyo3::intern!(py, "_transport"))?.is_none()
        || reader.getattr(pyo3::intern!(py, "_paused"))?.is_truthy()?
    {
        return Ok(());
    }
    transport.call_method0(pyo3::intern!(py, "pause_reading"))?;
    reader.setattr(pyo3::intern!(py, "_paused"), true)
}

/// The reader that `channel` feeds, if its protocol is plain and the reader alive.
pub(super) fn reader_of<'py>(py: Python<'py>, channel: &Channel) -> Option<(Bound<'py, PyAny>, Rc<Handoff>)> {
    let stream = channel.stream.borrow();
    let stream = stream.as_ref()?;
    let reader = stream.reader.bind(py).cast::<PyWeakrefReference>().ok()?.upgrade()?;
    Some((reader, Rc::clone(&stream.handoff)))
}
