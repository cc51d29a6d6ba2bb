//! `wsgi.input` of a request whose body is still on its way: reading waits for the client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use headrace_server::{BodyRead, ExchangeId};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::ffi::Guarded;
use crate::http::exchange::ClientDisconnected;
use crate::http::host::Host;

/// A file-like object over a request's body (PEP 3333, "Input and Error Streams").
///
/// The first reading tells a client that waits for it to go on (100 Continue). At most what the server reads
/// ahead, 256 KB, and what one call asks for is held.
#[pyclass(frozen, module = "headrace._native", name = "_Input")]
pub(super) struct Input {
    state: Guarded<State>,
}

struct State {
    host: Rc<Host>,
    id: ExchangeId,
    /// What has come, of which the first `at` bytes were given out.
    buffer: RefCell<Vec<u8>>,
    at: Cell<usize>,
    /// The body's end is in the buffer.
    finished: Cell<bool>,
}

/// A count as `read` and its like take it: negative and None for all.
fn limit(size: Option<isize>) -> usize {
    size.and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX)
}

impl State {
    fn available(&self) -> usize {
        self.buffer.borrow().len() - self.at.get()
    }

    /// Give out the next `count` bytes, or all that there are.
    fn give<'py>(&self, py: Python<'py>, count: usize) -> Bound<'py, PyBytes> {
        let count = count.min(self.available());
        let from = self.at.get();
        let bytes = PyBytes::new(py, &self.buffer.borrow()[from..from + count]);
        self.at.set(from + count);
        if self.available() == 0 {
            self.buffer.take();
            self.at.set(0);
        }
        bytes
    }

    /// Have more in the buffer, or the body's end. Waits for the client.
    fn fill(&self, py: Python<'_>) -> PyResult<()> {
        let host = &self.host;
        let given = self.at.replace(0);
        self.buffer.borrow_mut().drain(..given);
        while !self.finished.get() {
            host.tell_time();
            let read =
                host.server.read_body(self.id, |bytes| self.buffer.borrow_mut().extend_from_slice(bytes));
            host.settle(py);
            match read {
                BodyRead::Data { more, .. } => {
                    self.finished.set(!more);
                    return Ok(());
                }
                BodyRead::Finished => self.finished.set(true),
                BodyRead::Pending if host.server.is_open(self.id) => match host.pool() {
                    Some(pool) => pool.wait(py, self.id)?,
                    None => return Err(disconnected()),
                },
                BodyRead::Pending | BodyRead::Disconnected => return Err(disconnected()),
            }
        }
        Ok(())
    }

    /// Bytes up to and with the next line end, at most `limit`.
    fn line<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut seen = 0;
        loop {
            let available = self.available();
            let found = memchr::memchr(b'\n', &self.buffer.borrow()[self.at.get()..][seen..]);
            if let Some(found) = found {
                return Ok(self.give(py, limit.min(seen + found + 1)));
            }
            if available >= limit || self.finished.get() {
                return Ok(self.give(py, limit));
            }
            seen = available;
            self.fill(py)?;
        }
    }
}

fn disconnected() -> PyErr {
    ClientDisconnected::new_err("the client has disconnected before its request's body was complete")
}

impl Input {
    pub(super) fn new(host: Rc<Host>, id: ExchangeId) -> Self {
        Self {
            state: Guarded::new(State {
                host,
                id,
                buffer: RefCell::default(),
                at: Cell::new(0),
                finished: Cell::new(false),
            }),
        }
    }
}

#[pymethods]
impl Input {
    #[pyo3(signature = (size=-1, /))]
    fn read<'py>(&self, py: Python<'py>, size: Option<isize>) -> PyResult<Bound<'py, PyBytes>> {
        let wanted = limit(size);
        while self.state.available() < wanted && !self.state.finished.get() {
            self.state.fill(py)?;
        }
        Ok(self.state.give(py, wanted))
    }

    #[pyo3(signature = (size=-1, /))]
    fn readline<'py>(&self, py: Python<'py>, size: Option<isize>) -> PyResult<Bound<'py, PyBytes>> {
        self.state.line(py, limit(size))
    }

    #[pyo3(signature = (hint=-1, /))]
    fn readlines<'py>(&self, py: Python<'py>, hint: Option<isize>) -> PyResult<Bound<'py, PyList>> {
        // As in Python's io: no line is begun once so many bytes are there; zero is no bound either.
        let hint = if hint == Some(0) { usize::MAX } else { limit(hint) };
        let lines = PyList::empty(py);
        let mut total = 0;
        while total < hint {
            let line = self.state.line(py, usize::MAX)?;
            if line.as_bytes().is_empty() {
                break;
            }
            total += line.as_bytes().len();
            lines.append(line)?;
        }
        Ok(lines)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let line = self.state.line(py, usize::MAX)?;
        Ok((!line.as_bytes().is_empty()).then_some(line))
    }
}
