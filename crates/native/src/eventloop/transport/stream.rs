//! Feeding a plain `asyncio.StreamReader` without its protocol in between.
//!
//! Where a read waits on an empty buffer, what it asked for goes straight to it; the rest goes into the
//! reader's `_buffer`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyWeakrefMethods, PyWeakrefReference};

use super::super::reader::ReaderState;
use super::channel::Channel;

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

/// The reader of a plain stream protocol, fed natively.
pub(super) struct Stream {
    /// `StreamReaderProtocol._stream_reader_wr`: the reader may be collected while the connection lives.
    pub(super) reader: Py<PyAny>,
    pub(super) state: Py<ReaderState>,
}

impl Stream {
    /// The stream of the reader that `reference` is a weak reference to; `None` when it is gone already.
    pub(super) fn new(reference: Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Some(reader) = reference.cast::<PyWeakrefReference>()?.upgrade() else { return Ok(None) };
        let state = ReaderState::of(reader.as_borrowed())?.unbind();
        Ok(Some(Self { reader: reference.unbind(), state }))
    }

    /// The reader, if it is alive, and its state.
    pub(super) fn upgrade<'py>(
        &self,
        py: Python<'py>,
    ) -> Option<(Bound<'py, PyAny>, Bound<'py, ReaderState>)> {
        let reader = self.reader.bind(py).cast::<PyWeakrefReference>().ok()?.upgrade()?;
        Some((reader, self.state.bind(py).clone()))
    }
}

/// Give `data` to the reader. Returns false when the reader is not as it should be, and the protocol must do it.
pub(super) fn feed(reader: &Bound<'_, PyAny>, state: &ReaderState, data: &[u8]) -> PyResult<bool> {
    let py = reader.py();
    let Some(buffered) = state.buffered(py) else { return Ok(false) };
    let mut rest = data;
    if buffered == 0
        && let Some(count) = state.want.get().of(data)
        && state.handed.borrow().is_none()
    {
        state.want.set(Want::Nothing);
        let taken = PyBytes::new(py, &data[..count]).unbind();
        state.handed.replace(Some(taken));
        rest = &data[count..];
    }
    if rest.is_empty() {
        return state.wake(py).map(|()| true);
    }
    state.append(py, rest)?;
    state.wake(py)?;
    state.pause_if_full(reader.as_borrowed())?;
    Ok(true)
}

/// Hand a whole `bytes` over, if a read waits for that much on an empty buffer.
pub(super) fn hand_over(state: &ReaderState, data: &Bound<'_, PyBytes>) -> PyResult<bool> {
    let py = data.py();
    let length = data.as_bytes().len();
    if state.want.get().of(data.as_bytes()) != Some(length)
        || state.handed.borrow().is_some()
        || state.buffered(py) != Some(0)
    {
        return Ok(false);
    }
    state.want.set(Want::Nothing);
    state.handed.replace(Some(data.clone().unbind()));
    state.wake(py)?;
    Ok(true)
}

/// The reader that `channel` feeds, if its protocol is plain and the reader alive, and the reader's state.
pub(super) fn reader_of<'py>(
    py: Python<'py>,
    channel: &Channel,
) -> Option<(Bound<'py, PyAny>, Bound<'py, ReaderState>)> {
    channel.stream.borrow().as_ref()?.upgrade(py)
}
