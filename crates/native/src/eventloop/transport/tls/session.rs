//! OpenSSL's half of a connection, as CPython's `_ssl` wraps it.

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};

use super::super::super::reader::ReaderState;
use super::super::stream::Stream;
use crate::ffi::openssl::{Answer, Connection};
use crate::ffi::{Guarded, bytes, view};

/// The longest plaintext of one record (RFC 8446, section 5.1).
const RECORD: usize = 16 * 1024;

/// What TLS 1.3 adds to a record without padding: header, content type and tag (RFC 8446, section 5.2). A `bytes` of
/// just the right size need not be shrunk; where there is more, it comes with the next one.
const OVERHEAD: usize = 5 + 1 + 16;
/// Up to this size a copy is cheaper than a view.
const COPIED: usize = 4 * 1024;

/// OpenSSL's state of one connection, and the stream reader that is fed from it.
#[pyclass(frozen, module = "headrace._native")]
pub(crate) struct TlsSession {
    state: Guarded<State>,
}

struct State {
    /// OpenSSL's own objects within the three below; `None`: they are driven by `_ssl`'s methods.
    direct: Option<Connection>,
    /// `_ssl._SSLSocket`, whose methods are C.
    connection: Py<PyAny>,
    /// `ssl.MemoryBIO`: what the peer has sent.
    incoming: Py<PyAny>,
    /// `ssl.MemoryBIO`: what is to be sent.
    outgoing: Py<PyAny>,
    /// The application's protocol is a plain stream protocol: its reader is fed without it.
    stream: RefCell<Option<Stream>>,
    /// The protocol's `_write_backlog`: a deque of what OpenSSL could not take yet.
    backlog: Py<PyAny>,
    /// See [`TlsSession::flows`].
    usual: Cell<bool>,
    /// OpenSSL has taken a part of a record and waits for the rest.
    partial: Cell<bool>,
}

/// What OpenSSL gave when asked for all there is.
pub(super) struct Decrypted<'py> {
    /// May be empty.
    pub(super) data: Bound<'py, PyBytes>,
    /// The peer has said that it will send no more (`close_notify`).
    pub(super) ended: bool,
}

/// What one `SSL_read` or `SSL_write` gave.
pub(super) enum Outcome {
    Done(usize),
    /// It takes more from the peer.
    Again,
}

#[pymethods]
impl TlsSession {
    /// `connection` is an `_ssl._SSLSocket` made over the two `ssl.MemoryBIO`s; `backlog` is the protocol's deque of
    /// data that waits to be encrypted.
    #[new]
    fn new(
        connection: &Bound<'_, PyAny>,
        incoming: &Bound<'_, PyAny>,
        outgoing: &Bound<'_, PyAny>,
        backlog: Py<PyAny>,
    ) -> Self {
        Self {
            state: Guarded::new(State {
                direct: Connection::of(connection, incoming, outgoing),
                connection: connection.clone().unbind(),
                incoming: incoming.clone().unbind(),
                outgoing: outgoing.clone().unbind(),
                stream: RefCell::default(),
                backlog,
                usual: Cell::new(false),
                partial: Cell::new(false),
            }),
        }
    }

    /// Whether the protocol's state allows what is usual: the handshake is done, nothing is paused.
    #[getter]
    fn get_usual(&self) -> bool {
        self.state.usual.get()
    }

    #[setter]
    fn set_usual(&self, usual: bool) {
        self.state.usual.set(usual);
    }

    /// Feed the reader that `reader` refers to weakly, without its protocol; `None`: feed the protocol.
    fn set_reader(&self, reader: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let stream = reader.map_or(Ok(None), Stream::new)?;
        let old = self.state.stream.replace(stream);
        drop(old);
        Ok(())
    }

    /// Whether OpenSSL is called without `_ssl` in between.
    #[getter]
    fn direct(&self) -> bool {
        self.state.direct.is_some()
    }

    /// Whether a stream reader is fed natively.
    #[getter]
    fn streaming(&self) -> bool {
        self.state.stream.borrow().is_some()
    }
}

impl TlsSession {
    /// Whether a reader is fed natively that no error has been set on.
    pub(super) fn feeds_well(&self) -> bool {
        self.state.stream.borrow().as_ref().is_some_and(|stream| !stream.state.get().failed())
    }

    /// The reader that is fed natively, if there is one and it is alive.
    pub(super) fn reader<'py>(
        &self,
        py: Python<'py>,
    ) -> Option<(Bound<'py, PyAny>, Bound<'py, ReaderState>)> {
        self.state.stream.borrow().as_ref()?.upgrade(py)
    }

    /// Whether data can go its usual way, both ways, with no more questions: the handshake is done, shutdown has not
    /// begun, nobody has paused anything, and nothing waits to be encrypted.
    pub(super) fn flows(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.state.usual.get() && self.state.backlog.bind(py).len()? == 0)
    }

    /// Give OpenSSL what the peer has sent.
    pub(super) fn receive(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        if let Some(direct) = &self.state.direct
            && direct.receive(py, data)
        {
            return Ok(());
        }
        let incoming = self.state.incoming.bind(py);
        let name = pyo3::intern!(py, "write");
        if data.len() <= COPIED {
            return incoming.call_method1(name, (PyBytes::new(py, data),)).map(drop);
        }
        view::readable(py, data, |view| incoming.call_method1(name, (view,)).map(drop))
    }

    /// Bytes of the peer that OpenSSL has not taken yet.
    pub(super) fn unread(&self, py: Python<'_>) -> PyResult<usize> {
        if let Some(direct) = &self.state.direct {
            return Ok(direct.unread(py));
        }
        self.state.incoming.bind(py).getattr(pyo3::intern!(py, "pending"))?.extract()
    }

    /// Bytes that are to be sent.
    pub(super) fn unsent(&self, py: Python<'_>) -> PyResult<usize> {
        if let Some(direct) = &self.state.direct {
            return Ok(direct.unsent(py));
        }
        self.state.outgoing.bind(py).getattr(pyo3::intern!(py, "pending"))?.extract()
    }

    /// Take what is to be sent.
    pub(super) fn take_outgoing<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(direct) = &self.state.direct {
            let take = |space: &mut [MaybeUninit<u8>]| Ok::<_, PyErr>(direct.take(py, space));
            return Ok(bytes::filled(py, direct.unsent(py), take)??.into_any());
        }
        self.state.outgoing.bind(py).call_method0(pyo3::intern!(py, "read"))
    }

    /// Bytes of the record last read that OpenSSL has decrypted and not given out.
    fn decrypted(&self, py: Python<'_>) -> PyResult<usize> {
        if let Some(direct) = &self.state.direct {
            return Ok(direct.decrypted(py));
        }
        self.state.connection.bind(py).call_method0(pyo3::intern!(py, "pending"))?.extract()
    }

    /// Encrypt `data`.
    pub(super) fn encrypt(&self, data: &Bound<'_, PyBytes>) -> PyResult<Outcome> {
        let py = data.py();
        match self.state.direct.as_ref().map(|direct| direct.write(py, data.as_bytes())) {
            Some(Answer::Done(count)) => return Ok(Outcome::Done(count)),
            Some(Answer::WantRead) => return Ok(Outcome::Again),
            Some(Answer::Other) | None => {}
        }
        let outcome = self.state.connection.bind(py).call_method1(pyo3::intern!(py, "write"), (data,));
        again_or(py, outcome)
    }

    fn decrypt_into(&self, py: Python<'_>, space: &mut [MaybeUninit<u8>]) -> PyResult<Outcome> {
        match self.state.direct.as_ref().map(|direct| direct.read(py, space)) {
            Some(Answer::Done(count)) => return Ok(Outcome::Done(count)),
            Some(Answer::WantRead) => return Ok(Outcome::Again),
            Some(Answer::Other) | None => {}
        }
        let length = space.len();
        let outcome = view::writable(py, space, |view| {
            self.state.connection.bind(py).call_method1(pyo3::intern!(py, "read"), (length, view))
        });
        again_or(py, outcome)
    }

    /// Decrypt all that has come.
    pub(super) fn decrypt<'py>(&self, py: Python<'py>) -> PyResult<Decrypted<'py>> {
        let mut whole: Option<Vec<u8>> = None;
        let mut left = self.unread(py)?;
        if left == 0 {
            left = self.decrypted(py)?;
        }
        if left == 0 {
            return Ok(Decrypted { data: PyBytes::new(py, b""), ended: false });
        }
        loop {
            // Plaintext is shorter than its record; of a record begun earlier a part is in OpenSSL already.
            let earlier = if self.state.partial.get() { RECORD } else { 0 };
            let capacity = (left + earlier).saturating_sub(OVERHEAD).max(1);
            let mut ended = false;
            let mut more = 0;
            let data = bytes::filled(py, capacity, |space| -> PyResult<usize> {
                let mut filled = 0;
                loop {
                    match self.decrypt_into(py, &mut space[filled..])? {
                        Outcome::Again => {
                            self.state.partial.set(true);
                            return Ok(filled);
                        }
                        Outcome::Done(0) => {
                            ended = true;
                            return Ok(filled);
                        }
                        Outcome::Done(count) => filled += count,
                    }
                    self.state.partial.set(false);
                    // Nothing left on either side: asking again would only make an exception of it.
                    more = self.unread(py)?;
                    if more == 0 {
                        more = self.decrypted(py)?;
                    }
                    if more == 0 || filled == capacity {
                        return Ok(filled);
                    }
                }
            })??;
            let full = data.as_bytes().len() == capacity;
            if full && more > 0 && !ended {
                whole.get_or_insert_default().extend_from_slice(data.as_bytes());
                left = more + self.decrypted(py)?;
                continue;
            }
            let data = match whole {
                None => data,
                Some(mut whole) => {
                    whole.extend_from_slice(data.as_bytes());
                    PyBytes::new(py, &whole)
                }
            };
            return Ok(Decrypted { data, ended });
        }
    }
}

fn again_or(py: Python<'_>, outcome: PyResult<Bound<'_, PyAny>>) -> PyResult<Outcome> {
    match outcome {
        Ok(count) => Ok(Outcome::Done(count.extract()?)),
        Err(error) => {
            if is_again(py, &error)? {
                Ok(Outcome::Again)
            } else {
                Err(error)
            }
        }
    }
}

/// As asyncio does, take both "want read" and a system call's error (there is none) for "not yet".
fn is_again(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    static WANT_READ: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static SYSCALL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Ok(error.is_instance(py, WANT_READ.import(py, "ssl", "SSLWantReadError")?)
        || error.is_instance(py, SYSCALL.import(py, "ssl", "SSLSyscallError")?))
}
