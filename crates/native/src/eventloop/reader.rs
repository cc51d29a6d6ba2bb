//! What a native stream reader is made of: the state that asyncio keeps in attributes of the reader, kept here,
//! where feeding and reading reach it without a look-up for each.
//!
//! The attributes still are there for whoever asks for them, asyncio's own methods first: the reader's class has
//! data descriptors of the same names that read and write the state. It hangs in the reader's own dictionary and
//! is made, out of the attributes that the reader has by then, when it is first asked for.
//!
//! Two things are put off until somebody looks at `_buffer`: taking what was read off its front, and putting
//! back what was handed to a read that has not yet picked it up.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;

use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyType};

use super::futures;
use super::transport::Want;
use crate::ffi::fastcall::{Args, FastMethod, install as install_method};
use crate::ffi::property::{self, Property};
use crate::ffi::{Guarded, bytes};

/// What the front of the buffer may keep of bytes that were read already, before they are taken off: moving the
/// rest costs no more than it did to read so much.
const READ_KEPT: usize = 64 * 1024;
/// An empty buffer of more than this is given back.
const EMPTY_KEPT: usize = 64 * 1024;

/// The state of one reader.
#[pyclass(frozen, module = "headrace._native")]
pub(super) struct ReaderState {
    state: Guarded<Fields>,
}

/// The names are those of `asyncio.StreamReader`'s attributes.
pub(super) struct Fields {
    /// A `bytearray`, unless somebody has put something else there.
    buffer: RefCell<Py<PyAny>>,
    /// Bytes at the front of the buffer that were read already.
    start: Cell<usize>,
    pub(super) waiter: RefCell<Option<Py<PyAny>>>,
    exception: RefCell<Option<Py<PyAny>>>,
    pub(super) limit: Cell<usize>,
    pub(super) eof: Cell<bool>,
    pub(super) paused: Cell<bool>,
    /// What the read that waits would take of new data.
    pub(super) want: Cell<Want>,
    /// What was handed to it and it has not picked up.
    pub(super) handed: RefCell<Option<Py<PyBytes>>>,
}

impl std::ops::Deref for ReaderState {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        &self.state
    }
}

impl ReaderState {
    /// The state of `reader`, an instance of the native class.
    pub(super) fn of<'py>(reader: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = reader.py();
        let own = property::own(reader)?;
        let key = pyo3::intern!(py, "_native");
        if let Some(state) = own.get_item(key)? {
            return Ok(state.cast_into::<Self>()?);
        }
        let take = |name: &str| -> PyResult<Option<Bound<'py, PyAny>>> {
            let value = own.get_item(name)?;
            if value.is_some() {
                own.del_item(name)?;
            }
            Ok(value)
        };
        let buffer = take("_buffer")?.unwrap_or_else(|| PyByteArray::new(py, b"").into_any());
        let truth = |value: Option<Bound<'py, PyAny>>| value.map_or(Ok(false), |value| value.is_truthy());
        let state = Self {
            state: Guarded::new(Fields {
                buffer: RefCell::new(buffer.unbind()),
                start: Cell::new(0),
                waiter: RefCell::new(take("_waiter")?.filter(|it| !it.is_none()).map(Bound::unbind)),
                exception: RefCell::new(take("_exception")?.filter(|it| !it.is_none()).map(Bound::unbind)),
                limit: Cell::new(take("_limit")?.map_or(Ok(0), |limit| size(limit.as_borrowed()))?),
                eof: Cell::new(truth(take("_eof")?)?),
                paused: Cell::new(truth(take("_paused")?)?),
                want: Cell::default(),
                handed: RefCell::default(),
            }),
        };
        let state = Bound::new(py, state)?;
        own.set_item(key, &state)?;
        Ok(state)
    }

    /// Whether `set_exception` was called.
    pub(super) fn failed(&self) -> bool {
        self.exception.borrow().is_some()
    }

    /// The buffer as it is, with bytes at its front that were read already. `None`: somebody has put something
    /// in its place that is no `bytearray`.
    fn raw<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyByteArray>> {
        self.buffer.borrow().bind(py).cast_exact::<PyByteArray>().ok().cloned()
    }

    /// Bytes that wait to be read; `None` where the buffer is no `bytearray`.
    pub(super) fn buffered(&self, py: Python<'_>) -> Option<usize> {
        Some(self.raw(py)?.len().saturating_sub(self.start.get()))
    }

    /// Look at what waits to be read. `look` runs no Python code.
    pub(super) fn look<T>(&self, py: Python<'_>, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let start = self.start.get();
        Some(bytes::with_content(&self.raw(py)?, |content| look(content.get(start..).unwrap_or(&[]))))
    }

    /// Take the first `count` bytes, of which there are that many.
    pub(super) fn take<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyBytes>> {
        let Some(buffer) = self.raw(py) else {
            return Err(PyTypeError::new_err("the buffer is not a bytearray"));
        };
        let start = self.start.get();
        let taken = bytes::with_content(&buffer, |content| {
            PyBytes::new(py, content.get(start..start + count).unwrap_or(&[]))
        });
        self.start.set(start + count);
        if start + count >= buffer.len() && buffer.len() > EMPTY_KEPT {
            self.tidy(&buffer)?;
        }
        Ok(taken)
    }

    /// Add to the end of the buffer. Returns false where it is no `bytearray`.
    pub(super) fn append(&self, py: Python<'_>, data: &[u8]) -> PyResult<bool> {
        let Some(buffer) = self.raw(py) else { return Ok(false) };
        let start = self.start.get();
        if start > 0 && start >= buffer.len() {
            bytes::overwrite(&buffer, data)?;
            self.start.set(0);
            return Ok(true);
        }
        if start > READ_KEPT {
            self.tidy(&buffer)?;
        }
        bytes::append(&buffer, data)?;
        Ok(true)
    }

    /// Take what was read off the front of the buffer.
    fn tidy(&self, buffer: &Bound<'_, PyByteArray>) -> PyResult<()> {
        let start = self.start.get();
        if start > 0 {
            bytes::delete_front(buffer, start)?;
            self.start.set(0);
        }
        Ok(())
    }

    /// Put what was handed to a read, which did not pick it up, back before all else.
    pub(super) fn put_back(&self, py: Python<'_>) -> PyResult<()> {
        let Some(data) = self.handed.take() else { return Ok(()) };
        let Some(buffer) = self.raw(py) else { return Ok(()) };
        self.tidy(&buffer)?;
        let rest = buffer.to_vec();
        bytes::overwrite(&buffer, data.as_bytes(py))?;
        bytes::append(&buffer, &rest)
    }

    /// `StreamReader._wakeup_waiter`.
    pub(super) fn wake(&self, py: Python<'_>) -> PyResult<()> {
        match self.waiter.take() {
            Some(waiter) => futures::complete(waiter.bind(py)),
            None => Ok(()),
        }
    }

    /// The end of `StreamReader.feed_data`: twice the limit is as much as may pile up.
    pub(super) fn pause_if_full(&self, reader: Borrowed<'_, '_, PyAny>) -> PyResult<()> {
        let py = reader.py();
        let Some(length) = self.buffered(py) else { return Ok(()) };
        if self.paused.get() || length <= self.limit.get().saturating_mul(2) {
            return Ok(());
        }
        let transport = reader.getattr(pyo3::intern!(py, "_transport"))?;
        if transport.is_none() {
            return Ok(());
        }
        match transport.call_method0(pyo3::intern!(py, "pause_reading")) {
            Ok(_) => self.paused.set(true),
            // "The transport can't be paused. We'll just have to buffer all data." (asyncio)
            Err(error) if error.is_instance_of::<pyo3::exceptions::PyNotImplementedError>(py) => {
                reader.setattr(pyo3::intern!(py, "_transport"), py.None())?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[pymethods]
impl ReaderState {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(buffer) = self.buffer.try_borrow() {
            visit.call(&*buffer)?;
        }
        for cell in [&self.waiter, &self.exception] {
            if let Ok(held) = cell.try_borrow() {
                visit.call(&*held)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let held = (self.waiter.take(), self.exception.take());
        drop(held);
    }
}

/// A limit in bytes. asyncio only compares with it: a float will do, infinity too.
fn size(value: Borrowed<'_, '_, PyAny>) -> PyResult<usize> {
    value.extract::<usize>().or_else(|_| value.extract::<f64>().map(|number| number as usize))
}

/// Give `class`, a subclass of `asyncio.StreamReader`, the descriptors, and a native `feed_data`.
pub(super) fn install(class: &Bound<'_, PyType>) -> PyResult<()> {
    property::install::<Buffer>(class)?;
    property::install::<Waiter>(class)?;
    property::install::<Exception>(class)?;
    property::install::<Limit>(class)?;
    property::install::<Eof>(class)?;
    property::install::<Paused>(class)?;
    install_method::<FeedData>(class)
}

type Reader<'a, 'py> = Borrowed<'a, 'py, PyAny>;

fn or_none<'py>(cell: &RefCell<Option<Py<PyAny>>>, py: Python<'py>) -> Bound<'py, PyAny> {
    cell.borrow().as_ref().map_or_else(|| py.None().into_bound(py), |held| held.bind(py).clone())
}

fn assign(cell: &RefCell<Option<Py<PyAny>>>, value: Borrowed<'_, '_, PyAny>) {
    let value = (!value.is_none()).then(|| value.to_owned().unbind());
    let old = cell.replace(value);
    drop(old);
}

struct Buffer;

impl Property for Buffer {
    const NAME: &'static CStr = c"_buffer";

    fn get<'py>(slf: Reader<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let state = ReaderState::of(slf)?;
        let state = state.get();
        state.put_back(py)?;
        if let Some(buffer) = state.raw(py) {
            state.tidy(&buffer)?;
        }
        Ok(state.buffer.borrow().bind(py).clone())
    }

    fn set(slf: Reader<'_, '_>, value: Borrowed<'_, '_, PyAny>) -> PyResult<()> {
        let state = ReaderState::of(slf)?;
        let state = state.get();
        state.start.set(0);
        let old = (state.buffer.replace(value.to_owned().unbind()), state.handed.take());
        drop(old);
        Ok(())
    }
}

struct Waiter;

impl Property for Waiter {
    const NAME: &'static CStr = c"_waiter";

    fn get<'py>(slf: Reader<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(or_none(&ReaderState::of(slf)?.get().waiter, slf.py()))
    }

    fn set(slf: Reader<'_, '_>, value: Borrowed<'_, '_, PyAny>) -> PyResult<()> {
        assign(&ReaderState::of(slf)?.get().waiter, value);
        Ok(())
    }
}

struct Exception;

impl Property for Exception {
    const NAME: &'static CStr = c"_exception";

    fn get<'py>(slf: Reader<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(or_none(&ReaderState::of(slf)?.get().exception, slf.py()))
    }

    fn set(slf: Reader<'_, '_>, value: Borrowed<'_, '_, PyAny>) -> PyResult<()> {
        assign(&ReaderState::of(slf)?.get().exception, value);
        Ok(())
    }
}

struct Limit;

impl Property for Limit {
    const NAME: &'static CStr = c"_limit";

    fn get<'py>(slf: Reader<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(ReaderState::of(slf)?.get().limit.get().into_pyobject(slf.py())?.into_any())
    }

    fn set(slf: Reader<'_, '_>, value: Borrowed<'_, '_, PyAny>) -> PyResult<()> {
        ReaderState::of(slf)?.get().limit.set(size(value)?);
        Ok(())
    }
}

fn boolean<'py>(slf: Reader<'_, 'py>, value: bool) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyBool::new(slf.py(), value).to_owned().into_any())
}

struct Eof;

impl Property for Eof {
    const NAME: &'static CStr = c"_eof";

    fn get<'py>(slf: Reader<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        boolean(slf, ReaderState::of(slf)?.get().eof.get())
    }

    fn set(slf: Reader<'_, '_>, value: Borrowed<'_, '_, PyAny>) -> PyResult<()> {
        ReaderState::of(slf)?.get().eof.set(value.is_truthy()?);
        Ok(())
    }
}

struct Paused;

impl Property for Paused {
    const NAME: &'static CStr = c"_paused";

    fn get<'py>(slf: Reader<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        boolean(slf, ReaderState::of(slf)?.get().paused.get())
    }

    fn set(slf: Reader<'_, '_>, value: Borrowed<'_, '_, PyAny>) -> PyResult<()> {
        ReaderState::of(slf)?.get().paused.set(value.is_truthy()?);
        Ok(())
    }
}

/// `feed_data(data)`: what a transport that is not native calls, TLS for one.
struct FeedData;

impl FastMethod for FeedData {
    const NAME: &'static CStr = c"feed_data";

    fn call<'py>(slf: Borrowed<'_, 'py, PyAny>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let [Some(data)] = args.bind("feed_data", ["data"], 1)? else { unreachable!("it is required") };
        let state = ReaderState::of(slf)?;
        let state = state.get();
        if !state.eof.get()
            && let Ok(data) = data.cast_exact::<PyBytes>()
        {
            if data.as_bytes().is_empty() {
                return Ok(py.None().into_bound(py));
            }
            if state.append(py, data.as_bytes())? {
                state.wake(py)?;
                state.pause_if_full(slf)?;
                return Ok(py.None().into_bound(py));
            }
        }
        // After the end, or something else than bytes: asyncio says what is wrong with it, if anything is.
        let plain = super::streams::plain_reader(py)?;
        plain.as_any().call_method1("feed_data", (slf, data))
    }
}
